//! Problems of patches.

use thiserror::Error;

use crate::object::ObjectError;
use crate::parse::ParseError;

/// Problem of a patch, or of a part of it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// Not valid YAML, more than one document, or larger than a patch may be.
    #[error("{0}")]
    Yaml(ParseError),
    /// Neither a map nor a list.
    #[error("write a map (a strategic merge patch) or a list of operations (a JSON patch)")]
    Shape,
    /// An invalid or incomplete operation.
    #[error("operation {0} is invalid; it needs op, path, and value or from")]
    Operation(usize),
    /// A JSON patch without target.
    #[error("a JSON patch needs a target")]
    NoTarget,
    /// A strategic merge patch that names no object.
    #[error("name the object by apiVersion, kind and metadata.name, or give a target")]
    Unnamed,
    /// An unknown value of `$patch`.
    #[error("$patch must be delete, replace or merge")]
    Directive,
    /// `$retainKeys` contradicts the patch.
    #[error("$retainKeys must name every field that the patch sets")]
    RetainKeys,
    /// The value of a directive is not a list.
    #[error("the value of the directive must be a list")]
    NotAList,
    /// An item of a list of maps is not a map.
    #[error("the list contains maps, but an item is not a map")]
    ItemNotAMap,
    /// An item lacks the key of the list.
    #[error("an item lacks {0}, by which the list is merged")]
    MergeKey(&'static str),
    /// The operation `test` failed.
    #[error("the value differs from the tested one")]
    TestFailed,
    /// The object has no value at `path`.
    #[error("the object has no such path")]
    NoSuchPath,
    /// The object has no value at `from`.
    #[error("the object has no value at the path in from")]
    NothingToTake,
    /// The operation `move` has a destination inside of its source.
    #[error("a value cannot be moved into itself")]
    MoveIntoItself,
    /// Nested deeper than a manifest may be.
    #[error("nested too deeply")]
    TooDeep,
    /// All changes together are larger than a manifest may be.
    #[error("the patches make the object too large")]
    TooLarge,
    /// The patch changes the identity of the object.
    #[error("a patch cannot change apiVersion, kind, metadata.name or metadata.namespace")]
    OtherObject,
    /// The result is not a valid object.
    #[error("the patched object {0}")]
    NoObject(ObjectError),
}
