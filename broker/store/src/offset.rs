//! The two address spaces of the store, as types so that they cannot be mixed up.

/// A byte position in the commit log, counted from the first byte ever written ("phy" in the store spec).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PhysicalOffset(pub i64);

/// The number of an entry in one consume queue: what clients call the queue offset ("cqOffset" in the store spec).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueOffset(pub i64);

macro_rules! offset {
    ($name:ident) => {
        impl $name {
            /// The plain number.
            #[must_use]
            pub const fn get(self) -> i64 {
                self.0
            }

            /// This offset moved forward by `by`; stays at the largest number instead of wrapping.
            #[must_use]
            pub const fn plus(self, by: i64) -> Self {
                Self(self.0.saturating_add(by))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(formatter)
            }
        }

        impl From<i64> for $name {
            fn from(value: i64) -> Self {
                Self(value)
            }
        }
    };
}

offset!(PhysicalOffset);
offset!(QueueOffset);
