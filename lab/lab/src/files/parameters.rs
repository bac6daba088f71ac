//! The parameters of a workload, as types: numbers within a range, and choices among words.
//!
//! [`parameters!`](crate::parameters) declares a struct of them. The names of its fields are the keys of the
//! experiment's file, and of `--set`; the file is checked against them, with the nearest name for a wrong one, before
//! anything runs. [`choice!`](crate::choice) declares a choice among words.
//!
//! ```
//! pageferry_lab::choice! {
//!     /// What the writer does with its buffer.
//!     pub enum Buffer {
//!         /// It is filled once.
//!         Kept = "kept",
//!         /// It is filled before each write.
//!         Refilled = "refilled",
//!     }
//! }
//! pageferry_lab::parameters! {
//!     /// What the file says.
//!     pub struct Parameters {
//!         size_bytes: usize = 1..=1 << 32,
//!         rounds: u64 = 1..=1000,
//!         buffer: Buffer,
//!     }
//! }
//! ```

use super::reads::{Reads, Values};
use super::setting::Setting;
use pageferry_kernel::{ReceiveMode, SendMode};
use pageferry_workloads::{By, Pin};
use std::collections::BTreeMap;

/// What a workload reads of its experiment's file. [`parameters!`](crate::parameters) implements it.
pub trait Parameters: Sized {
    /// The keys, and what may stand there.
    const READS: &'static [Reads];

    /// The values that `settings` has.
    ///
    /// # Errors
    /// A key that is missing, or whose value is of another type: what was checked by [`READS`](Self::READS) has none.
    fn read(settings: &BTreeMap<String, Setting>) -> Result<Self, String>;
}

/// A value of a parameter or a choice.
pub trait Value: Sized {
    /// The words of a choice; none for a number.
    const WORDS: Option<&'static [&'static str]>;

    /// What `setting` says.
    fn read(setting: &Setting) -> Option<Self>;
}

/// What a field of type `V` reads; a number comes with its range.
///
/// # Panics
/// A number without a range, or words with one: when the program is compiled.
pub const fn reads<V: Value>(key: &'static str, range: Option<(i64, i64)>) -> Reads {
    let values = match (V::WORDS, range) {
        (None, Some((min, max))) => Values::Numbers { min, max },
        (Some(words), None) => Values::Words(words),
        (None, None) => panic!("a number has a range: `times: u64 = 1..=100`"),
        (Some(_), Some(_)) => panic!("words have no range"),
    };
    Reads { key, values }
}

/// The value of `key`.
///
/// # Errors
/// There is none, or it is of another type.
pub fn value<V: Value>(settings: &BTreeMap<String, Setting>, key: &str) -> Result<V, String> {
    let setting = settings.get(key).ok_or_else(|| format!("`{key}` is missing"))?;
    V::read(setting).ok_or_else(|| format!("`{key}` cannot be {setting}"))
}

macro_rules! numbers {
    ($($name:ty),*) => { $(
        impl Value for $name {
            const WORDS: Option<&'static [&'static str]> = None;

            fn read(setting: &Setting) -> Option<$name> {
                setting.number()?.try_into().ok()
            }
        }
    )* };
}

numbers!(u8, u16, u32, u64, usize, i32, i64);

/// A choice among words that stand for values of a type that others declare.
macro_rules! words_for {
    ($($name:ty { $($word:literal => $value:expr),* })*) => { $(
        impl Value for $name {
            const WORDS: Option<&'static [&'static str]> = Some(&[$($word),*]);

            fn read(setting: &Setting) -> Option<$name> {
                match setting {
                    $(Setting::Text(word) if word == $word => Some($value),)*
                    _ => None,
                }
            }
        }
    )* };
}

words_for! {
    bool { "true" => true, "false" => false }
    SendMode {
        "copy" => SendMode::Copy, "loan" => SendMode::Loan, "auto" => SendMode::Auto, "pin" => SendMode::Pin
    }
    ReceiveMode { "copy" => ReceiveMode::Copy, "transfer" => ReceiveMode::Transfer, "auto" => ReceiveMode::Auto }
    Pin { "free" => Pin::Free, "same" => Pin::Same, "other" => Pin::Other }
    By { "socket" => By::Socket, "pass" => By::Pass, "auto" => By::Auto }
}

/// One of the words that the experiment's file has, or the name of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WordOrFile(pub String);

impl Value for WordOrFile {
    const WORDS: Option<&'static [&'static str]> = Some(&[]);

    fn read(setting: &Setting) -> Option<WordOrFile> {
        match setting {
            Setting::Text(word) => Some(WordOrFile(word.clone())),
            Setting::Integer(_) => None,
        }
    }
}

/// Declares the parameters of a workload: see [`files::Parameters`](crate::files::Parameters). A number has a range
/// behind it, a choice none.
#[macro_export]
macro_rules! parameters {
    (
        $(#[$doc:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_doc:meta])* $field:ident: $type:ty $(= $min:literal ..= $max:expr)?),* $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "the keys of the file say it")]
        $vis struct $name { $($(#[$field_doc])* pub $field: $type),* }

        impl $crate::files::Parameters for $name {
            const READS: &'static [$crate::files::Reads] = &[$(
                $crate::files::reads::<$type>(
                    stringify!($field),
                    $crate::parameters!(@range $($min, $max)?),
                )
            ),*];

            fn read(
                settings: &::std::collections::BTreeMap<String, $crate::files::Setting>,
            ) -> Result<$name, String> {
                Ok($name { $($field: $crate::files::value(settings, stringify!($field))?),* })
            }
        }
    };
    (@range) => { None };
    (@range $min:expr, $max:expr) => { Some(($min, $max)) };
}

/// Declares a choice among words: see [`files::Value`](crate::files::Value).
#[macro_export]
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $vis:vis enum $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal),* $(,)? }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(missing_docs, reason = "the words say it")]
        $vis enum $name { $($(#[$variant_doc])* $variant),* }

        impl $crate::files::Value for $name {
            const WORDS: Option<&'static [&'static str]> = Some(&[$($word),*]);

            fn read(setting: &$crate::files::Setting) -> Option<$name> {
                match setting {
                    $($crate::files::Setting::Text(word) if word == $word => Some($name::$variant),)*
                    _ => None,
                }
            }
        }
    };
}
