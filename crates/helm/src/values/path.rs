//! Paths in the values for `targetPath`, in the syntax of `helm --set`: `a.b[0].c`; `\` escapes the character after
//! it.

use serde_json::{Map, Value};

/// Maximum index of a list, as for `helm --set`.
const MAX_LIST_INDEX: usize = 65_536;

/// Why a path is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A key between two dots or at an end is empty.
    #[error("a key is empty")]
    EmptyKey,
    /// The text in brackets is not a valid index.
    #[error("an index is not a number from 0 to {MAX_LIST_INDEX}, in brackets after a key")]
    Index,
    /// The path has a key and the value is a list, or the reverse.
    #[error("it leads through a value that is not the map or list that the path requires")]
    Kind,
}

/// One segment of a path into the values.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

/// Sets a value, and creates missing maps and lists on its path. A list that is too short is filled with nulls.
///
/// # Errors
/// If the path is invalid, or leads through a value that is neither a map nor a list. The values are unchanged then.
pub fn set_path(values: &mut Map<String, Value>, path: &str, value: Value) -> Result<(), PathError> {
    let steps = steps(path)?;
    let mut whole = Value::Object(std::mem::take(values));
    let done = is_open(&whole, &steps).then_some(()).ok_or(PathError::Kind);
    if done.is_ok() {
        *reach(&mut whole, &steps) = value;
    }
    if let Value::Object(whole) = whole {
        *values = whole;
    }
    done
}

/// Reports whether these values have a value at a path, or one on the path that is no map. False for an invalid path.
pub fn is_taken(values: &Map<String, Value>, path: &str) -> bool {
    let Ok(steps) = steps(path) else { return false };
    let mut at = values;
    for step in steps {
        let Step::Key(key) = step else { return true };
        match at.get(&key) {
            Some(Value::Object(map)) => at = map,
            found => return found.is_some(),
        }
    }
    true
}

/// Reports whether the path is free. A null value may be replaced, as in Helm.
fn is_open(at: &Value, steps: &[Step]) -> bool {
    let Some((step, rest)) = steps.split_first() else { return true };
    let below = match (step, at) {
        (_, Value::Null) => None,
        (Step::Key(key), Value::Object(map)) => map.get(key),
        (Step::Index(index), Value::Array(items)) => items.get(*index),
        _ => return false,
    };
    below.is_none_or(|below| is_open(below, rest))
}

fn reach<'a>(mut at: &'a mut Value, steps: &[Step]) -> &'a mut Value {
    for step in steps {
        at = match step {
            Step::Key(key) => {
                if !at.is_object() {
                    *at = Value::Object(Map::new());
                }
                &mut at[key.as_str()]
            }
            Step::Index(index) => {
                if !at.is_array() {
                    *at = Value::Array(vec![]);
                }
                if let Value::Array(items) = &mut *at
                    && items.len() <= *index
                {
                    items.resize(index + 1, Value::Null);
                }
                &mut at[*index]
            }
        };
    }
    at
}

fn steps(path: &str) -> Result<Vec<Step>, PathError> {
    let mut steps = vec![];
    let mut key = String::new();
    let mut rest = path.chars();
    // A key may begin at the start and after a dot. After an index, only a dot or another index may follow.
    let mut expects_key = true;
    while let Some(next) = rest.next() {
        match next {
            '.' if !expects_key || !key.is_empty() => {
                take_key(&mut key, &mut steps);
                expects_key = true;
            }
            '[' if !expects_key || !key.is_empty() => {
                take_key(&mut key, &mut steps);
                expects_key = false;
                let (digits, after) = rest.as_str().split_once(']').ok_or(PathError::Index)?;
                steps.push(Step::Index(index(digits).ok_or(PathError::Index)?));
                rest = after.chars();
            }
            '.' | '[' => return Err(PathError::EmptyKey),
            _ if !expects_key => return Err(PathError::Index),
            '\\' => key.extend(rest.next()),
            other => key.push(other),
        }
    }
    if expects_key && key.is_empty() {
        return Err(PathError::EmptyKey);
    }
    take_key(&mut key, &mut steps);
    Ok(steps)
}

fn index(digits: &str) -> Option<usize> {
    let index = digits.parse().ok().filter(|index| *index <= MAX_LIST_INDEX);
    index.filter(|_| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

fn take_key(key: &mut String, steps: &mut Vec<Step>) {
    if !key.is_empty() {
        steps.push(Step::Key(std::mem::take(key)));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn after(values: &Value, path: &str) -> Result<Value, PathError> {
        let mut values = values.as_object().unwrap().clone();
        let before = values.clone();
        let done = set_path(&mut values, path, json!("x"));
        if done.is_err() {
            assert_eq!(values, before, "a path that cannot be followed changes nothing");
        }
        done.map(|()| Value::Object(values))
    }

    #[test]
    fn a_path_is_taken_where_something_is_there_or_in_its_way() {
        let values =
            json!({"a": {"b.c/d": 1, "list": [1], "scalar": 1, "none": null}, "other": {"deep": {}}});
        let values = values.as_object().unwrap();
        for path in ["a", r"a.b\.c/d", "a.list[1]", "a.scalar.x", "a.none.x", "other.deep"] {
            assert!(is_taken(values, path), "{path}");
        }
        for path in ["b", "a.b", "a.other[0]", "other.deep.x", "a..list", ""] {
            assert!(!is_taken(values, path), "{path}");
        }
    }

    #[test]
    fn a_path_makes_what_is_missing_and_leaves_what_is_beside_it() {
        let values = json!({"a": {"b": 1}, "list": [{"k": 1}], "none": null});
        let at = |path| after(&values, path).unwrap();
        assert_eq!(at("a.c")["a"], json!({"b": 1, "c": "x"}));
        assert_eq!(at("a.b")["a"], json!({"b": "x"}));
        assert_eq!(at("list[0].l")["list"], json!([{"k": 1, "l": "x"}]));
        assert_eq!(at("list[2]")["list"], json!([{"k": 1}, null, "x"]));
        assert_eq!(at("new[1][0].a")["new"], json!([null, [{"a": "x"}]]));
        assert_eq!(at("none.a")["none"], json!({"a": "x"}));
        assert_eq!(at(r"example\.org/a.b")["example.org/a"], json!({"b": "x"}));
    }

    #[test]
    fn a_path_that_cannot_be_followed_is_refused() {
        let values = json!({"a": {"b": 1}, "list": []});
        for path in ["", ".", "a.", ".a", "a..b", "[0]", "a.[0]"] {
            assert_eq!(after(&values, path), Err(PathError::EmptyKey), "{path}");
        }
        for path in ["a[", "a[0", "a[x]", "a[-1]", "a[+1]", "a[]", "a[65537]", "a[0]b"] {
            assert_eq!(after(&values, path), Err(PathError::Index), "{path}");
        }
        for path in ["a.b.c", "a[0]", "list.a", "a.b[0]"] {
            assert_eq!(after(&values, path), Err(PathError::Kind), "{path}");
        }
    }
}
