//! The names of one lease.

use std::fmt;
use std::sync::Arc;

use super::{InvalidInput, Name};

/// The names that one lease covers: 1 to 16, sorted and distinct. A set of one name, the usual case,
/// allocates nothing beyond the name itself.
///
/// The order is fixed, so that two clients that lock the same names one after the other cannot
/// block each other.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct NameSet(Names);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Names {
    One(Name),
    // Two or more, except inside `new`, which checks the count.
    Several(Arc<[Name]>),
}

impl NameSet {
    /// The maximum number of names. A store changes all of them in one step, so the step is bounded.
    pub const MAX_NAMES: usize = 16;

    /// Sorts the names and removes duplicates.
    ///
    /// # Errors
    /// There is no name, or more than [`Self::MAX_NAMES`].
    pub fn new(names: impl IntoIterator<Item = Name>) -> Result<Self, InvalidInput> {
        let set = Self::from_vec(names.into_iter().collect());
        match set.as_slice().len() {
            1..=Self::MAX_NAMES => Ok(set),
            count => Err(InvalidInput::new(
                "names",
                count.to_string(),
                format!("one lease covers 1 to {} names", Self::MAX_NAMES),
            )),
        }
    }

    fn from_vec(mut names: Vec<Name>) -> Self {
        names.sort_unstable();
        names.dedup();
        match names.as_slice() {
            [_] => Self(Names::One(names.swap_remove(0))),
            _ => Self(Names::Several(names.into())),
        }
    }

    /// All names, in order. Never empty.
    #[must_use]
    pub fn as_slice(&self) -> &[Name] {
        match &self.0 {
            Names::One(name) => std::slice::from_ref(name),
            Names::Several(names) => names,
        }
    }

    /// The only name; `None` if there are several.
    #[must_use]
    pub fn single(&self) -> Option<&Name> {
        match &self.0 {
            Names::One(name) => Some(name),
            Names::Several(_) => None,
        }
    }

    /// The first name: the only one, or the one that stands for the lease in queues and messages.
    #[must_use]
    pub fn first(&self) -> &Name {
        match &self.0 {
            Names::One(name) => name,
            Names::Several(names) => &names[0],
        }
    }

    /// Changes every name, for example by a prefix.
    ///
    /// # Errors
    /// The error of the first name that cannot be changed.
    pub fn try_map<E>(&self, mut change: impl FnMut(&Name) -> Result<Name, E>) -> Result<Self, E> {
        match &self.0 {
            Names::One(name) => change(name).map(Self::from),
            Names::Several(names) => names.iter().map(change).collect::<Result<_, E>>().map(Self::from_vec),
        }
    }
}

impl From<Name> for NameSet {
    fn from(name: Name) -> Self {
        Self(Names::One(name))
    }
}

impl From<&Name> for NameSet {
    fn from(name: &Name) -> Self {
        Self::from(name.clone())
    }
}

impl fmt::Display for NameSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.first())?;
        self.as_slice().iter().skip(1).try_for_each(|name| write!(f, ", {name}"))
    }
}

impl fmt::Debug for NameSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.as_slice()).finish()
    }
}
