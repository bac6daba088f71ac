//! Events that kernel code counts. The floor that counts them declares them, by [`counters!`](crate::counters).
//!
//! A machine knows of an event its number, and keeps a count for each number. The numbers of a floor follow those of
//! the floor below; the top of the house has them all in one list. (The machine counts its own: TLB hits and misses,
//! cache accesses, interrupts.)

/// What is said of an event that is counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metric {
    number: u8,
    name: &'static str,
    unit: &'static str,
    about: &'static str,
}

impl Metric {
    /// The most that a machine keeps counts of.
    pub const MAX: usize = 128;

    /// Declares one; by [`counters!`](crate::counters).
    ///
    /// # Panics
    /// When the number is beyond the most: while a floor is compiled.
    pub const fn new(number: u8, name: &'static str, unit: &'static str, about: &'static str) -> Metric {
        assert!((number as usize) < Metric::MAX, "too many events are counted");
        Metric { number, name, unit, about: about.trim_ascii() }
    }

    /// Its place among all counts.
    #[inline]
    pub const fn index(&self) -> usize {
        self.number as usize
    }

    /// The name used in results and reports.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What is counted: events (`count`), or something else.
    pub const fn unit(&self) -> &'static str {
        self.unit
    }

    /// What it means, in a sentence.
    pub const fn about(&self) -> &'static str {
        self.about
    }
}

/// Declares the events that a floor counts: each with what it means, its name in results and, where it is not events
/// that are counted, the unit. Their numbers begin where those of the floor below end.
///
/// ```
/// pageferry_hal::counters! {
///     /// What this floor counts.
///     pub enum MyCounter from 0 => {
///         /// Pages moved.
///         PagesMoved = "pages_moved",
///         /// Bytes copied.
///         BytesCopied = "bytes_copied" in "bytes",
///     }
/// }
/// let bytes = MyCounter::BytesCopied.metric();
/// assert_eq!((bytes.index(), bytes.name(), bytes.unit()), (1, "bytes_copied", "bytes"));
/// assert_eq!(bytes.about(), "Bytes copied.");
/// assert_eq!((MyCounter::METRICS.len(), MyCounter::END), (2, 2));
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident from $first:expr => {
            $($(#[doc = $doc:literal])+ $variant:ident = $text:literal $(in $unit:literal)?,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis enum $name { $($(#[doc = $doc])+ $variant,)+ }

        impl $name {
            /// What is said of each, in order of declaration.
            pub const METRICS: &'static [$crate::Metric] = &[$($name::$variant.metric()),+];
            /// The first number that the floor above may use.
            pub const END: u8 = $first + Self::METRICS.len() as u8;

            /// What is said of it.
            #[inline]
            pub const fn metric(self) -> $crate::Metric {
                match self {
                    $($name::$variant => const {
                        let number = $first + $name::$variant as u8;
                        $crate::Metric::new(number, $text, $crate::counters!(@unit $($unit)?), concat!($($doc),+))
                    })+
                }
            }
        }

        impl From<$name> for $crate::Metric {
            #[inline]
            fn from(counter: $name) -> $crate::Metric {
                counter.metric()
            }
        }
    };
    (@unit) => { "count" };
    (@unit $unit:literal) => { $unit };
}
