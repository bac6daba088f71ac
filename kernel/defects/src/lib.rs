//! Defects that tests plant, to see that the checks find them.
//!
//! A check that cannot fail proves nothing. So each floor lists, by [`defects!`], what a real one could do wrong, and
//! asks at the place whether that is [planted](Planted). A test plants one and sees it caught.
//!
//! Without the feature `verify` nothing is planted: the question is answered by the compiler, what would be done wrong
//! is not compiled, and no name of a defect is in the program. With it, their names are in the program even where
//! nobody asks for them, so that a search tells the two apart.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(not(feature = "verify"))]
use core::marker::PhantomData;

/// What is planted: one defect, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Planted<D> {
    #[cfg(feature = "verify")]
    defect: Option<D>,
    #[cfg(not(feature = "verify"))]
    none: PhantomData<D>,
}

impl<D> Planted<D> {
    /// Nothing: everything is sound.
    pub const NONE: Planted<D> = Planted {
        #[cfg(feature = "verify")]
        defect: None,
        #[cfg(not(feature = "verify"))]
        none: PhantomData,
    };
}

impl<D> Default for Planted<D> {
    fn default() -> Planted<D> {
        Planted::NONE
    }
}

#[cfg(feature = "verify")]
impl<D: Copy + PartialEq> Planted<D> {
    /// Whether it is this one.
    #[inline]
    pub fn is(&self, defect: D) -> bool {
        self.defect == Some(defect)
    }

    /// Which one it is, if there is one.
    pub const fn defect(&self) -> Option<D> {
        self.defect
    }
}

#[cfg(not(feature = "verify"))]
impl<D> Planted<D> {
    /// Whether it is this one: never.
    #[inline(always)]
    #[allow(clippy::needless_pass_by_value)]
    pub const fn is(&self, defect: D) -> bool
    where
        D: Copy,
    {
        let _ = defect;
        false
    }
}

#[cfg(feature = "verify")]
impl<D> From<D> for Planted<D> {
    fn from(defect: D) -> Planted<D> {
        Planted { defect: Some(defect) }
    }
}

#[cfg(feature = "verify")]
impl<D> From<Option<D>> for Planted<D> {
    fn from(defect: Option<D>) -> Planted<D> {
        Planted { defect }
    }
}

/// Declares the defects of a floor: each with a sentence that is its documentation and its text; and, below, what some
/// of them need to show.
///
/// ```
/// pageferry_defects::defects! {
///     /// What can be wrong with a counter.
///     pub enum CounterDefect {
///         OneTooMany: "One is counted twice.",
///         Lost: "A count is lost where two CPUs count at once.",
///     }
///     /// It shows only on several CPUs.
///     needs_cpus: [Lost];
/// }
/// assert_eq!(CounterDefect::ALL.len(), 2);
/// assert_eq!(CounterDefect::OneTooMany.sentence(), "One is counted twice.");
/// assert_eq!(CounterDefect::Lost.name(), "Lost");
/// assert!(CounterDefect::Lost.needs_cpus() && !CounterDefect::OneTooMany.needs_cpus());
/// ```
#[macro_export]
macro_rules! defects {
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident { $($variant:ident: $sentence:literal,)+ }
        $($(#[$about:meta])* $needs:ident: [$($needing:ident),+ $(,)?];)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        $vis enum $name { $(#[doc = $sentence] $variant,)+ }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// Its name.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => stringify!($variant),)+ }
            }

            /// What it does.
            pub const fn sentence(self) -> &'static str {
                match self { $($name::$variant => $sentence,)+ }
            }

            $($(#[$about])* pub const fn $needs(self) -> bool {
                matches!(self, $($name::$needing)|+)
            })*
        }

        $crate::shown! { $($variant)+ }
    };
}

/// The names of defects, kept in every program that can have them planted.
#[cfg(feature = "verify")]
#[doc(hidden)]
#[macro_export]
macro_rules! shown {
    ($($variant:ident)+) => {
        const _: () = {
            #[used]
            static NAMES: &[&str] = &[$(stringify!($variant)),+];
        };
    };
}

/// None are kept.
#[cfg(not(feature = "verify"))]
#[doc(hidden)]
#[macro_export]
macro_rules! shown {
    ($($variant:ident)+) => {};
}

#[cfg(test)]
mod tests {
    use super::*;

    defects! {
        /// For the test.
        enum TestDefect {
            One: "The first.",
            Two: "The second.",
        }
    }

    #[test]
    fn one_is_planted_or_none() {
        assert_eq!(TestDefect::One.sentence(), "The first.");
        assert!(TestDefect::ALL.iter().all(|&defect| !Planted::NONE.is(defect)));
        #[cfg(feature = "verify")]
        assert!(Planted::from(TestDefect::Two).is(TestDefect::Two) && TestDefect::Two.name() == "Two");
        #[cfg(not(feature = "verify"))]
        assert_eq!(size_of::<Planted<TestDefect>>(), 0);
    }
}
