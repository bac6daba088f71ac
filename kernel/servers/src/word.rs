//! Typed requests: one declaration gives each its number, its name, and the words in which it is written and read.
//!
//! A request is written as an *envelope*: a number and a few words, and for some servers a name or two. What a word
//! holds has a type ([`Word`]); [`requests`] says which of a request's fields is in which word. Words that a request
//! does not use are zero. Words are eight bytes each, the least significant first.
//!
//! # What can fail
//! Reading: [`Errno::Invalid`] for a number that is none, and for a word that no value has.

use alloc::string::String;
use alloc::vec::Vec;
use pageferry_abi::Errno;

/// What one word of a request or of an answer can hold.
pub(super) trait Word: Sized {
    /// As it is written.
    fn word(&self) -> u64;
    /// What is written.
    ///
    /// # Errors
    /// [`Errno::Invalid`]: no value is written so.
    fn of_word(word: u64) -> Result<Self, Errno>;
}

impl Word for u64 {
    fn word(&self) -> u64 {
        *self
    }
    fn of_word(word: u64) -> Result<u64, Errno> {
        Ok(word)
    }
}

impl Word for usize {
    fn word(&self) -> u64 {
        *self as u64
    }
    fn of_word(word: u64) -> Result<usize, Errno> {
        word.try_into().map_err(|_| Errno::Invalid)
    }
}

impl Word for bool {
    fn word(&self) -> u64 {
        u64::from(*self)
    }
    fn of_word(word: u64) -> Result<bool, Errno> {
        match word {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Errno::Invalid),
        }
    }
}

/// A value of a plain enum by its place in a list of all of them.
pub(super) fn place_of<T: PartialEq>(all: &[T], value: &T) -> u64 {
    all.iter().position(|one| one == value).expect("all are in the list") as u64
}

/// The value at a place of such a list.
pub(super) fn at_place<T: Copy>(all: &[T], place: u64) -> Result<T, Errno> {
    usize::try_from(place).ok().and_then(|place| all.get(place).copied()).ok_or(Errno::Invalid)
}

/// A place of an envelope, which a field is put into and taken from.
pub(super) trait Slot<T>: Sized {
    fn put(field: &T) -> Self;
    fn take(self) -> Result<T, Errno>;
}

impl<T: Word> Slot<T> for u64 {
    fn put(field: &T) -> u64 {
        field.word()
    }
    fn take(self) -> Result<T, Errno> {
        T::of_word(self)
    }
}

impl Slot<String> for String {
    fn put(field: &String) -> String {
        field.clone()
    }
    fn take(self) -> Result<String, Errno> {
        Ok(self)
    }
}

/// The words at the beginning of `bytes`.
pub(super) fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    core::array::from_fn(|i| u64::from_le_bytes(bytes[i * 8..][..8].try_into().expect("eight bytes")))
}

/// Words as they are written.
pub(super) fn bytes_of(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Declares the requests of a server: an enum, with the envelope's place behind each field. The number of a request is
/// its place in the list, from 0 on.
macro_rules! requests {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Request:ident in $Envelope:ident {
            $(
                $(#[$doc:meta])*
                $Name:ident $({ $($field:ident: $type:ty = $slot:ident),* $(,)? })?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        $vis enum $Request {
            $( $(#[$doc])* $Name $({ $($field: $type),* })? ),*
        }

        impl $Request {
            /// In its envelope.
            // A request may fill all of its envelope.
            #[allow(clippy::needless_update)]
            $vis fn envelope(&self) -> $Envelope {
                enum Number { $($Name),* }
                match self {
                    $(
                        $Request::$Name $({ $($field),* })? => $Envelope {
                            number: Number::$Name as u64,
                            $($($slot: $crate::word::Slot::put($field),)*)?
                            ..$Envelope::default()
                        }
                    ),*
                }
            }

            /// What is in an envelope.
            ///
            /// # Errors
            /// [`Errno::Invalid`]: that is no request.
            $vis fn of_envelope(envelope: $Envelope) -> Result<$Request, Errno> {
                enum Number { $($Name),* }
                $(
                    if envelope.number == Number::$Name as u64 {
                        return Ok($Request::$Name $({
                            $($field: $crate::word::Slot::take(envelope.$slot)?),*
                        })?);
                    }
                )*
                Err(Errno::Invalid)
            }
        }
    };
}
pub(super) use requests;
