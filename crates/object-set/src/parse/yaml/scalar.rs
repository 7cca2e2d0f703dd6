//! Resolves one scalar: the resolver of go-yaml v2, then Go's JSON encoding of the result.

use base64::Engine as _;
use granit_parser::Tag;
use serde_json::{Number, Value};

/// Returns the JSON value of a scalar. `plain`: it was written without quotes and not as a block.
pub(super) fn resolve(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, &'static str> {
    let Some(tag) = tag else {
        return if plain { implicit(text) } else { Ok(text.into()) };
    };
    if is_core(tag, "binary") {
        return binary(text);
    }
    let wanted = ["null", "bool", "int", "float"].into_iter().find(|name| is_core(tag, name));
    // `!!str`, `!`, timestamps and custom tags leave the text unchanged.
    let Some(wanted) = wanted else { return Ok(text.into()) };
    let value = implicit(text)?;
    let fits = match (&value, wanted) {
        (Value::Null, "null") | (Value::Bool(_), "bool") | (Value::Number(_), "float") => true,
        (Value::Number(_), "int") => integer(&text.replace('_', "")).is_some(),
        _ => false,
    };
    if fits { Ok(value) } else { Err("a scalar does not fit its tag") }
}

/// Returns a map key as Go encodes it in JSON.
pub(super) fn key(value: &Value) -> Result<String, &'static str> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(flag) => Ok(flag.to_string()),
        Value::Number(number) => match number.as_i64() {
            Some(int) => Ok(int.to_string()),
            None => float_key(number),
        },
        Value::Null => Err("null cannot be a map key"),
        Value::Array(_) | Value::Object(_) => Err("a list or map cannot be a map key"),
    }
}

// Go formats float keys as 32 bit numbers. Whole floats were converted to integers before.
#[allow(clippy::cast_possible_truncation)]
fn float_key(number: &Number) -> Result<String, &'static str> {
    match number.as_f64() {
        Some(float) if number.is_f64() && (1e-4..1e21).contains(&float.abs()) => {
            Ok((float as f32).to_string())
        }
        _ => Err("a map key is an unusual number"),
    }
}

fn implicit(text: &str) -> Result<Value, &'static str> {
    let Some(first) = text.bytes().next() else { return Ok(Value::Null) };
    if let Some(value) = word(text) {
        return Ok(value);
    }
    match first {
        b'.' => Ok(match text.parse::<f64>() {
            Ok(float) if float.is_finite() => number(float),
            _ if matches!(text, ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF") => return Err(NOT_JSON),
            _ => text.into(),
        }),
        b'+' | b'-' | b'0'..=b'9' => numeric(text),
        _ => Ok(text.into()),
    }
}

const NOT_JSON: &str = "JSON has no such number";

fn numeric(text: &str) -> Result<Value, &'static str> {
    if matches!(text, "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf" | "-.INF") {
        return Err(NOT_JSON);
    }
    let plain = text.replace('_', "");
    if let Some(value) = integer(&plain) {
        return Ok(value);
    }
    if let Some(float) = plain.parse::<f64>().ok().filter(|float| is_float(&plain) && float.is_finite()) {
        return Ok(number(float));
    }
    Ok(text.into())
}

/// Resolves the YAML 1.1 words for true, false and null.
fn word(text: &str) -> Option<Value> {
    Some(match text {
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            Value::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            Value::Bool(false)
        }
        "~" | "null" | "Null" | "NULL" => Value::Null,
        _ => return None,
    })
}

/// Parses an integer like Go's `strconv.ParseInt` and `ParseUint` with base 0: prefixes, and a leading 0 for octal.
fn integer(text: &str) -> Option<Value> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("+", &text[1..]),
        _ => ("", text),
    };
    let prefix = |lower: &str, upper: &str| digits.strip_prefix(lower).or_else(|| digits.strip_prefix(upper));
    let (radix, digits) = if let Some(rest) = prefix("0x", "0X") {
        (16, rest)
    } else if let Some(rest) = prefix("0b", "0B") {
        (2, rest)
    } else if let Some(rest) = prefix("0o", "0O") {
        (8, rest)
    } else if digits.len() > 1 && digits.starts_with('0') {
        (8, &digits[1..])
    } else {
        (10, digits)
    };
    if digits.is_empty() || !digits.bytes().all(|b| char::from(b).is_digit(radix)) {
        return None;
    }
    if let Ok(int) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
        return Some(int.into());
    }
    let unsigned = u64::from_str_radix(digits, radix).ok().filter(|_| sign.is_empty())?;
    Some(unsigned.into())
}

/// Reports whether a text matches go-yaml's pattern for floats:
/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let digits = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    let mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => digits(fraction),
        Some((whole, fraction)) => digits(whole) && (fraction.is_empty() || digits(fraction)),
        None => digits(mantissa),
    };
    mantissa && exponent.is_none_or(|e| digits(e.strip_prefix(['-', '+']).unwrap_or(e)))
}

/// Returns a float as JSON. Go writes whole floats without a point, so they become integers.
#[allow(clippy::cast_possible_truncation)]
fn number(float: f64) -> Value {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if float.fract() == 0.0 && float.abs() < LIMIT {
        return (float as i64).into();
    }
    Number::from_f64(float).map_or(Value::Null, Value::Number)
}

fn binary(text: &str) -> Result<Value, &'static str> {
    let compact: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(compact)
        .map_err(|_| "a binary scalar is not base64")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned().into())
}

/// Reports whether a tag is the YAML core tag of that name (`!!name`).
fn is_core(tag: &Tag, name: &str) -> bool {
    tag.to_string() == format!("tag:yaml.org,2002:{name}") || tag.is_yaml_core_schema_tag(name)
}
