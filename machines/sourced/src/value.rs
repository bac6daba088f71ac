//! A parsed value as what serde reads from, with its place.
//!
//! The derived code of a type is compiled once for every kind of reader that it is offered, and `toml`'s own reader
//! offers four (a table, a date as a table, a value with its place as a table, a list). This one is the only reader of
//! configuration files, gives a type only what it can be made of, and knows where an error is: the place in the text
//! and the path of the key.
//!
//! A plain value where a [`Sourced`](super::Sourced) is wanted is read as its table would be; see [`SOURCED`].

use super::sourced::{FORM, SOURCED, SourceKind};
use serde::de::value::{MapAccessDeserializer, StrDeserializer};
use serde::de::{self, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// What a file may not say, and where it says so.
#[derive(Debug, Default)]
pub(super) struct Refusal {
    /// What was found and what was expected, in serde's words.
    pub(super) message: String,
    /// The bytes of the text.
    pub(super) at: Option<Range<usize>>,
    /// The keys that lead there, the last one first; `[3]` for an element of a list.
    path: Vec<String>,
}

impl Refusal {
    /// The path of the key: `cpu.clock_mhz`, `cache[1].ways`; empty for the whole file.
    pub(super) fn key(&self) -> String {
        let mut key = String::new();
        for segment in self.path.iter().rev() {
            if !key.is_empty() && !segment.starts_with('[') {
                key.push('.');
            }
            key.push_str(segment);
        }
        key
    }

    /// The same, of what lies at `at`, if it is not known to be of a part of that.
    fn placed(mut self, at: Range<usize>) -> Refusal {
        self.at.get_or_insert(at);
        self
    }

    /// The same, of the value in what [`SpannedValue::into_sourced`] made, which is not written as a table.
    fn of_plain(mut self) -> Refusal {
        self.path.pop();
        self.message = format!("{}; expected such a value, or {FORM}", self.message);
        self
    }

    /// The same, of what is within `segment`.
    fn within(mut self, segment: String) -> Refusal {
        self.path.push(segment);
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Refusal {
        Refusal { message: message.to_string(), ..Refusal::default() }
    }
}

/// A value, and the bytes of the text that it is written in.
pub(super) struct SpannedValue<'de> {
    value: DeValue<'de>,
    at: Range<usize>,
}

impl<'de> SpannedValue<'de> {
    /// A whole file.
    pub(super) fn table(table: Spanned<DeTable<'de>>) -> SpannedValue<'de> {
        SpannedValue { at: table.span(), value: DeValue::Table(table.into_inner()) }
    }

    fn new(value: Spanned<DeValue<'de>>) -> SpannedValue<'de> {
        SpannedValue { at: value.span(), value: value.into_inner() }
    }

    /// The error for a value of a type that `wanted` cannot be made of.
    fn unexpected(&self, wanted: &dyn de::Expected) -> Refusal {
        let found = match &self.value {
            DeValue::String(text) => Unexpected::Str(text),
            DeValue::Integer(number) => match number_of(number.as_str(), number.radix()) {
                Some(Whole::Signed(number)) => Unexpected::Signed(number),
                Some(Whole::Unsigned(number)) => Unexpected::Unsigned(number),
                None => Unexpected::Other("a number of more than 64 bits"),
            },
            DeValue::Float(number) => Unexpected::Float(number.as_str().parse().unwrap_or(f64::NAN)),
            DeValue::Boolean(flag) => Unexpected::Bool(*flag),
            DeValue::Datetime(_) => Unexpected::Other("a date"),
            DeValue::Array(_) => Unexpected::Seq,
            DeValue::Table(_) => Unexpected::Map,
        };
        Refusal::invalid_type(found, wanted).placed(self.at.clone())
    }

    fn visit_number<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let read = match &self.value {
            DeValue::Integer(number) => match number_of(number.as_str(), number.radix()) {
                Some(Whole::Signed(number)) => visitor.visit_i64(number),
                Some(Whole::Unsigned(number)) => visitor.visit_u64(number),
                None => return Err(self.unexpected(&visitor)),
            },
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => return Err(self.unexpected(&visitor)),
            },
            _ => return Err(self.unexpected(&visitor)),
        };
        read.map_err(|e: Refusal| e.placed(self.at))
    }

    fn visit_text<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.value {
            DeValue::String(text) => visitor.visit_str(text).map_err(|e: Refusal| e.placed(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    /// A sourced constant of which only the value is written, as the table that it stands for.
    fn into_sourced(self) -> DeTable<'de> {
        let at = self.at;
        let entry = |name: &'static str, value| {
            (Spanned::new(at.clone(), Cow::Borrowed(name)), Spanned::new(at.clone(), value))
        };
        let yours = DeValue::String(Cow::Borrowed(SourceKind::Yours.name()));
        DeTable::from_iter([entry("value", self.value), entry("kind", yours)])
    }
}

impl<'de> Deserializer<'de> for SpannedValue<'de> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.value {
            DeValue::String(_) => self.visit_text(visitor),
            DeValue::Integer(_) | DeValue::Float(_) => self.visit_number(visitor),
            DeValue::Boolean(_) => self.deserialize_bool(visitor),
            DeValue::Array(_) => self.deserialize_seq(visitor),
            DeValue::Table(_) => self.deserialize_map(visitor),
            DeValue::Datetime(_) => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.value {
            DeValue::Boolean(flag) => visitor.visit_bool(flag).map_err(|e: Refusal| e.placed(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.value {
            DeValue::Array(items) => {
                let items = Items { len: items.len(), rest: items.into_iter() };
                visitor.visit_seq(items).map_err(|e| e.placed(self.at))
            }
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.value {
            DeValue::Table(table) => visitor.visit_map(Entries::of(table)).map_err(|e| e.placed(self.at)),
            _ => Err(self.unexpected(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        if name == SOURCED && !matches!(self.value, DeValue::Table(_)) {
            return visitor.visit_map(Entries::of(self.into_sourced())).map_err(Refusal::of_plain);
        }
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.value {
            DeValue::String(word) => {
                visitor.visit_enum(IntoDeserializer::<Refusal>::into_deserializer(&*word))
            }
            DeValue::Table(table) => visitor.visit_enum(MapAccessDeserializer::new(Entries::of(table))),
            _ => return Err(self.unexpected(&visitor)),
        }
        .map_err(|e| e.placed(self.at))
    }

    // A key that is there is a value that is there.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    serde::forward_to_deserialize_any! {
        u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string bytes byte_buf unit ignored_any
        unit_struct tuple_struct tuple identifier
    }
}

/// The entries of a table that are still to be read.
struct Entries<'de> {
    rest: <DeTable<'de> as IntoIterator>::IntoIter,
    /// The entry whose key was read.
    read: Option<(String, SpannedValue<'de>)>,
}

impl<'de> Entries<'de> {
    fn of(table: DeTable<'de>) -> Entries<'de> {
        Entries { rest: table.into_iter(), read: None }
    }

    /// Reads the next key, and says where it is.
    fn advance(&mut self) -> Option<Range<usize>> {
        let (key, value) = self.rest.next()?;
        let at = key.span();
        self.read = Some((key.into_inner().into_owned(), SpannedValue::new(value)));
        Some(at)
    }
}

impl<'de> de::MapAccess<'de> for Entries<'de> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal> {
        let Some(at) = self.advance() else { return Ok(None) };
        let (name, _) = self.read.as_ref().expect("just read");
        seed.deserialize(StrDeserializer::<Refusal>::new(name)).map(Some).map_err(|e| e.placed(at))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Refusal> {
        let (name, value) = self.read.take().expect("a value is asked for after its key");
        let at = value.at.clone();
        seed.deserialize(value).map_err(|e| e.placed(at).within(name))
    }
}

/// The elements of a list that are still to be read.
struct Items<'de> {
    len: usize,
    rest: <DeArray<'de> as IntoIterator>::IntoIter,
}

impl<'de> de::SeqAccess<'de> for Items<'de> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refusal> {
        let place = self.len - self.rest.len();
        let Some(item) = self.rest.next() else { return Ok(None) };
        let item = SpannedValue::new(item);
        let at = item.at.clone();
        seed.deserialize(item).map(Some).map_err(|e| e.placed(at).within(format!("[{place}]")))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A whole number that fits 64 bits.
enum Whole {
    Signed(i64),
    Unsigned(u64),
}

fn number_of(digits: &str, radix: u32) -> Option<Whole> {
    i64::from_str_radix(digits, radix)
        .map(Whole::Signed)
        .or_else(|_| u64::from_str_radix(digits, radix).map(Whole::Unsigned))
        .ok()
}
