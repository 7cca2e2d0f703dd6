//! The values of an evaluation. Content of variables is borrowed and containers are shared, so a copy of a value is
//! cheap whatever its size.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::Rc;

use serde_json::Value as Json;

use super::budget::{Budget, EvaluationError};

/// Memory that one entry of a map takes: key, value and their share of a tree node, which may be half empty.
pub(super) const MAP_ENTRY_BYTES: usize = 2 * (size_of::<Key<'_>>() + size_of::<Value<'_>>()) + 64;
/// Memory that the first node of a map's tree takes, however few entries it has.
pub(super) const MAP_NODE_BYTES: usize = 11 * (size_of::<Key<'_>>() + size_of::<Value<'_>>()) + 64;

impl Budget {
    /// Takes memory for that many values of a list whose length is known.
    ///
    /// # Errors
    /// `Exhausted`.
    pub(super) fn allocate_values(&mut self, count: usize) -> Result<(), EvaluationError> {
        self.take_steps(count)?;
        self.allocate(count.saturating_mul(size_of::<Value<'_>>()))
    }
}

/// A value of CEL.
#[derive(Debug, Clone)]
pub(super) enum Value<'a> {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(Text<'a>),
    Bytes(Rc<[u8]>),
    List(List<'a>),
    Map(Map<'a>),
    Type(&'static str),
    Optional(Option<Rc<Value<'a>>>),
}

/// A string that is borrowed from the expression or a variable, or was built.
#[derive(Debug, Clone)]
pub(super) enum Text<'a> {
    Borrowed(&'a str),
    Shared(Rc<str>),
}

/// A list of a variable, or one that was built.
#[derive(Debug, Clone)]
pub(super) enum List<'a> {
    Json(&'a [Json]),
    Shared(Rc<Vec<Value<'a>>>),
}

/// A map of a variable, or one that was built.
#[derive(Debug, Clone)]
pub(super) enum Map<'a> {
    Json(&'a serde_json::Map<String, Json>),
    Shared(Rc<BTreeMap<Key<'a>, Value<'a>>>),
}

/// A key of a map. A `uint` that an `int` can hold is one, since both find the same entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    String(Text<'a>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl PartialEq for Text<'_> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Text<'_> {}

impl PartialOrd for Text<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Text<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl<'a> Value<'a> {
    /// Reads JSON as Kubernetes does: a whole number is an `int`.
    pub(super) fn from_json(json: &'a Json) -> Self {
        match json {
            Json::Null => Self::Null,
            Json::Bool(truth) => Self::Bool(*truth),
            Json::Number(number) => match (number.as_i64(), number.as_u64()) {
                (Some(whole), _) => Self::Int(whole),
                (None, Some(whole)) => Self::Uint(whole),
                (None, None) => Self::Double(number.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(text) => Self::String(Text::Borrowed(text)),
            Json::Array(list) => Self::List(List::Json(list)),
            Json::Object(map) => Self::Map(Map::Json(map)),
        }
    }

    /// The name of its type.
    pub(super) const fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Uint(_) => "uint",
            Self::Double(_) => "double",
            Self::String(_) => "string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "list",
            Self::Map(_) => "map",
            Self::Type(_) => "type",
            Self::Optional(_) => "optional_type",
        }
    }

    /// Reports whether two values are equal. Values of different types are not, except numbers.
    pub(super) fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, EvaluationError> {
        budget.take_steps(1)?;
        Ok(match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Bool(one), Self::Bool(other)) => one == other,
            (Self::String(one), Self::String(other)) => {
                one.len() == other.len() && {
                    budget.read_text(one.len())?;
                    one == other
                }
            }
            (Self::Bytes(one), Self::Bytes(other)) => {
                one.len() == other.len() && {
                    budget.read_text(one.len())?;
                    one == other
                }
            }
            (Self::Type(one), Self::Type(other)) => one == other,
            (Self::List(one), Self::List(other)) => one.equals(other, budget)?,
            (Self::Map(one), Self::Map(other)) => one.equals(other, budget)?,
            (Self::Optional(one), Self::Optional(other)) => match (one, other) {
                (Some(one), Some(other)) => one.equals(other, budget)?,
                (one, other) => one.is_none() == other.is_none(),
            },
            _ => self.compare_numbers(other) == Some(Ordering::Equal),
        })
    }

    /// Returns the order of two values.
    ///
    /// # Errors
    /// If the values have no order.
    pub(super) fn compare(&self, other: &Self, budget: &mut Budget) -> Result<Ordering, EvaluationError> {
        Ok(match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => one.cmp(other),
            (Self::String(one), Self::String(other)) => {
                budget.read_text(one.len().min(other.len()))?;
                one.cmp(other)
            }
            (Self::Bytes(one), Self::Bytes(other)) => {
                budget.read_text(one.len().min(other.len()))?;
                one.cmp(other)
            }
            _ => self.compare_numbers(other).ok_or(EvaluationError::Error)?,
        })
    }

    #[expect(clippy::cast_precision_loss, reason = "CEL compares an int with a double as doubles")]
    fn compare_numbers(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(one), Self::Int(other)) => Some(one.cmp(other)),
            (Self::Uint(one), Self::Uint(other)) => Some(one.cmp(other)),
            (Self::Int(one), Self::Uint(other)) => {
                Some(u64::try_from(*one).map_or(Ordering::Less, |one| one.cmp(other)))
            }
            (Self::Uint(one), Self::Int(other)) => {
                Some(i64::try_from(*one).map_or(Ordering::Greater, |one| one.cmp(other)))
            }
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Double(one), Self::Int(other)) => one.partial_cmp(&(*other as f64)),
            (Self::Int(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            (Self::Double(one), Self::Uint(other)) => one.partial_cmp(&(*other as f64)),
            (Self::Uint(one), Self::Double(other)) => (*one as f64).partial_cmp(other),
            _ => None,
        }
    }

    /// The key under which a map literal has an entry.
    ///
    /// # Errors
    /// A value of this type is no key.
    pub(super) fn literal_key(self) -> Result<Key<'a>, EvaluationError> {
        match self {
            Self::Bool(truth) => Ok(Key::Bool(truth)),
            Self::Int(whole) => Ok(Key::Int(whole)),
            Self::Uint(whole) => Ok(i64::try_from(whole).map_or(Key::Uint(whole), Key::Int)),
            Self::String(text) => Ok(Key::String(text)),
            _ => Err(EvaluationError::Error),
        }
    }

    /// The key that a value looks up: a whole `double` finds what the integer finds; `None` finds nothing.
    ///
    /// # Errors
    /// A value of this type is no key.
    pub(super) fn lookup_key(self) -> Result<Option<Key<'a>>, EvaluationError> {
        match self {
            Self::Double(number) => Ok(whole(number).map(Key::Int)),
            value => value.literal_key().map(Some),
        }
    }

    /// The position that a value means in a list.
    pub(super) fn as_index(&self) -> Option<usize> {
        match self {
            Self::Int(index) => usize::try_from(*index).ok(),
            Self::Uint(index) => usize::try_from(*index).ok(),
            Self::Double(index) => usize::try_from(whole(*index)?).ok(),
            _ => None,
        }
    }

    /// Reports whether `optional.ofNonZeroValue` returns no value for it.
    pub(super) fn is_zero(&self) -> bool {
        match self {
            Self::Null => true,
            Self::Bool(truth) => !truth,
            Self::Int(number) => *number == 0,
            Self::Uint(number) => *number == 0,
            Self::Double(number) => *number == 0.0,
            Self::String(text) => text.is_empty(),
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::List(list) => list.len() == 0,
            Self::Map(map) => map.len() == 0,
            Self::Type(_) => false,
            Self::Optional(value) => value.is_none(),
        }
    }
}

impl<'a> List<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(list) => list.len(),
            Self::Shared(list) => list.len(),
        }
    }

    pub(super) fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(list) => list.get(index).map(Value::from_json),
            Self::Shared(list) => list.get(index).cloned(),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(super) fn contains(&self, sought: &Value<'a>, budget: &mut Budget) -> Result<bool, EvaluationError> {
        for value in self.iter() {
            if value.equals(sought, budget)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, EvaluationError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        for (one, other) in self.iter().zip(other.iter()) {
            if !one.equals(&other, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'a> Map<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Json(map) => map.len(),
            Self::Shared(map) => map.len(),
        }
    }

    /// The value of a key.
    pub(super) fn get(
        &self,
        key: &Key<'a>,
        budget: &mut Budget,
    ) -> Result<Option<Value<'a>>, EvaluationError> {
        let depth = self.len().checked_ilog2().unwrap_or(0) as usize;
        let text = if let Key::String(text) = key { text.len() } else { 0 };
        budget.take_steps(1 + depth / 4)?;
        budget.take_steps(depth.saturating_mul(text / 64))?;
        Ok(match (self, key) {
            (Self::Json(map), Key::String(key)) => map.get(&**key).map(Value::from_json),
            (Self::Json(_), _) => None,
            (Self::Shared(map), key) => map.get(key).cloned(),
        })
    }

    /// The keys, in order. Takes memory for them.
    pub(super) fn keys(&self, budget: &mut Budget) -> Result<Vec<Value<'a>>, EvaluationError> {
        budget.allocate_values(self.len())?;
        Ok(match self {
            Self::Json(map) => map.keys().map(|key| Value::String(Text::Borrowed(key))).collect(),
            Self::Shared(map) => map.keys().cloned().map(Value::from).collect(),
        })
    }

    fn equals(&self, other: &Self, budget: &mut Budget) -> Result<bool, EvaluationError> {
        if self.len() != other.len() {
            return Ok(false);
        }
        for key in self.keys(budget)? {
            let key = key.literal_key()?;
            let (Some(one), Some(other)) = (self.get(&key, budget)?, other.get(&key, budget)?) else {
                return Ok(false);
            };
            if !one.equals(&other, budget)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl<'a> From<Key<'a>> for Value<'a> {
    fn from(key: Key<'a>) -> Self {
        match key {
            Key::Bool(truth) => Self::Bool(truth),
            Key::Int(whole) => Self::Int(whole),
            Key::Uint(whole) => Self::Uint(whole),
            Key::String(text) => Self::String(text),
        }
    }
}

/// The integer that a double is.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    clippy::cast_precision_loss,
    reason = "checked"
)]
fn whole(number: f64) -> Option<i64> {
    let range = (i64::MIN as f64)..(i64::MAX as f64);
    (range.contains(&number) && number.trunc() == number).then_some(number as i64)
}
