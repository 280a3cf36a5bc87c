//! Reads typed values from the tree, naming the place of every mistake.
//!
//! serde stops at the first mistake. To name them all, the part at fault is recorded and left out, and the whole tree is
//! read again until nothing new turns up. Unknown fields cost no further round.
//! Scalars have no type of their own; the field that reads one says what it must be.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::node::{Field, Kind, Node, Scalar};
use super::problem::{PROBLEMS_MAX, Place, Problem};

/// The typed file, or every mistake found in its form.
pub(super) fn read<T: DeserializeOwned>(root: &Node) -> Result<T, Vec<Problem>> {
    let sink = Sink::default();
    loop {
        let before = sink.bad.borrow().len();
        let value = T::deserialize(Reader { node: root, path: String::new(), sink: &sink });
        let value = value.map_err(|halt| sink.record(halt, root.place, ""));
        let left_out = sink.bad.borrow().len();
        match value {
            Ok(value) if left_out == 0 => return Ok(value),
            _ if left_out == before || sink.problems.borrow().len() > PROBLEMS_MAX => {
                return Err(sink.problems.into_inner());
            }
            _ => {}
        }
    }
}

/// Mistakes so far, and the paths that are left out because of them.
#[derive(Default)]
struct Sink {
    problems: RefCell<Vec<Problem>>,
    bad: RefCell<BTreeSet<String>>,
}

impl Sink {
    fn push(&self, place: Place, path: &str, what: String, help: String) {
        if self.bad.borrow_mut().insert(path.to_owned()) {
            self.problems.borrow_mut().push(Problem { place, path: path.to_owned(), what, help });
        }
    }

    /// Takes a mistake that has no place yet; one that was recorded deeper stays as it is.
    fn record(&self, halt: Halt, place: Place, path: &str) -> Halt {
        if let Some(what) = halt.0 {
            self.push(place, path, what, String::new());
        }
        Halt(None)
    }

    fn is_bad(&self, path: &str) -> bool {
        self.bad.borrow().contains(path)
    }

    /// A field of `path` was left out, so that it is missing is no news.
    fn lacks_inside(&self, path: &str) -> bool {
        let bad = self.bad.borrow();
        bad.iter().any(|bad| {
            bad.strip_prefix(path).is_some_and(|rest| path.is_empty() || rest.starts_with(['.', '[']))
        })
    }
}

/// Reading stopped; the text is a mistake without a place yet, `None` one that is recorded.
#[derive(Debug)]
struct Halt(Option<String>);

impl fmt::Display for Halt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("recorded"))
    }
}

impl std::error::Error for Halt {}

impl serde::de::Error for Halt {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(Some(message.to_string()))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self(Some(format!("`{variant}` is not known; {}", choices(variant, expected))))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(Some(format!("`{field}` is missing")))
    }
}

fn choices(name: &str, known: &[&str]) -> String {
    match known.iter().min_by_key(|candidate| distance(name, candidate)) {
        Some(nearest) if distance(name, nearest) <= 2 => format!("did you mean `{nearest}`?"),
        _ => format!("known are {}", known.join(", ")),
    }
}

/// Edits between two names.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, left) in a.chars().enumerate() {
        let mut corner = i;
        let mut previous = i + 1;
        for (cell, right) in row.iter_mut().skip(1).zip(b.chars()) {
            let here = (*cell + 1).min(previous + 1).min(corner + usize::from(left != right));
            corner = std::mem::replace(cell, here);
            previous = here;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

/// Objects that a word may stand for, and the field that it is.
const WORDS: [(&str, &str); 1] = [("Estimator", "kind")];

struct Reader<'a> {
    node: &'a Node,
    path: String,
    sink: &'a Sink,
}

impl<'a> Reader<'a> {
    fn wrong(&self, wanted: &str) -> Halt {
        let found = match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() => "nothing".to_owned(),
            Kind::Scalar(scalar) => format!("`{}`", scalar.shown()),
            Kind::List(_) => "a list".to_owned(),
            Kind::Map(_) => "an object".to_owned(),
        };
        self.refuse(format!("must be {wanted}, not {found}"))
    }

    fn refuse(&self, what: String) -> Halt {
        self.sink.record(Halt(Some(what)), self.node.place, &self.path)
    }

    fn scalar(&self, wanted: &str) -> Result<&'a Scalar, Halt> {
        match &self.node.kind {
            Kind::Scalar(scalar) if !scalar.is_null() => Ok(scalar),
            _ => Err(self.wrong(wanted)),
        }
    }

    /// Digits, with `_` between them for the eye. A quoted number counts only if a variable is in it.
    fn whole_number(&self) -> Result<u64, Halt> {
        let scalar = self.scalar("a whole number")?;
        let digits = scalar.text.replace('_', "");
        let bare = scalar.plain || scalar.written.is_some();
        if bare
            && digits
                .strip_prefix('-')
                .is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_digit()) && !rest.is_empty())
        {
            return Err(self.refuse(format!("must not be negative, not `{}`", scalar.shown())));
        }
        if !bare || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(self.wrong("a whole number"));
        }
        digits.parse().map_err(|_| self.refuse(format!("`{}` is too large", scalar.shown())))
    }

    fn narrow<T: TryFrom<u64>>(&self) -> Result<T, Halt> {
        let number = self.whole_number()?;
        T::try_from(number).map_err(|_| self.refuse(format!("{number} is too large")))
    }

    /// Calls the visitor; a mistake without a place gets this part's.
    fn placed<T>(&self, result: Result<T, Halt>) -> Result<T, Halt> {
        result.map_err(|halt| {
            if halt.0.is_some() && self.sink.lacks_inside(&self.path) {
                self.sink.bad.borrow_mut().insert(self.path.clone());
                return Halt(None);
            }
            self.sink.record(halt, self.node.place, &self.path)
        })
    }

    fn inner_path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// A word in place of an object, as the one field that it stands for.
    fn visit_word<'de, V: Visitor<'de>>(self, name: &str, visitor: V) -> Result<V::Value, Halt> {
        let field = Field { name: name.to_owned(), place: self.node.place, value: self.node.clone() };
        // A mistake is told at the word: nobody wrote the field.
        let rest = vec![(&field, self.path.clone())].into_iter();
        self.placed(visitor.visit_map(Fields { rest, current: None, sink: self.sink }))
    }

    fn visit_fields<'de, V: Visitor<'de>>(
        self,
        known: Option<&[&str]>,
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let Kind::Map(fields) = &self.node.kind else { return Err(self.wrong("an object")) };
        let mut kept = Vec::with_capacity(fields.len());
        for field in fields {
            let path = self.inner_path(&field.name);
            if let Some(known) = known.filter(|known| !known.contains(&field.name.as_str())) {
                let what = format!("unknown field `{}`", field.name);
                self.sink.push(field.place, &path, what, choices(&field.name, known));
            }
            if !self.sink.is_bad(&path) {
                kept.push((field, path));
            }
        }
        let access = Fields { rest: kept.into_iter(), current: None, sink: self.sink };
        self.placed(visitor.visit_map(access))
    }
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
            let number = self.narrow()?;
            self.placed(visitor.$visit(number))
        })*
    };
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Halt;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        match &self.node.kind {
            Kind::Scalar(_) => self.deserialize_str(visitor),
            Kind::List(_) => self.deserialize_seq(visitor),
            Kind::Map(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        let value = match self.scalar("true or false")? {
            scalar if !scalar.plain && scalar.written.is_none() => return Err(self.wrong("true or false")),
            scalar => match scalar.text.as_str() {
                "true" => true,
                "false" => false,
                _ => return Err(self.wrong("true or false")),
            },
        };
        self.placed(visitor.visit_bool(value))
    }

    whole_numbers!(
        deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32, deserialize_u64 visit_u64
    );

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        let scalar = self.scalar("a text")?;
        self.placed(visitor.visit_str(&scalar.text))
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        match &self.node.kind {
            Kind::Scalar(scalar) if scalar.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Halt> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        let Kind::List(items) = &self.node.kind else { return Err(self.wrong("a list")) };
        let access = Items { rest: items.iter().enumerate(), path: &self.path, sink: self.sink };
        self.placed(visitor.visit_seq(access))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        self.visit_fields(None, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        if let (Kind::Scalar(scalar), Some((_, field))) =
            (&self.node.kind, WORDS.iter().find(|(object, _)| *object == name))
            && !scalar.is_null()
        {
            return self.visit_word(field, visitor);
        }
        self.visit_fields(Some(fields), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Halt> {
        let scalar = self.scalar(&format!("one of {}", variants.join(", ")))?;
        if scalar.written.is_some() && !variants.contains(&scalar.text.as_str()) {
            return Err(self.wrong(&format!("one of {}", variants.join(", "))));
        }
        let result = visitor.visit_enum(Choice(scalar));
        self.placed(result)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Halt> {
        visitor.visit_unit()
    }

    // The file's types use nothing below.
    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u128 f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier
    }
}

struct Fields<'a> {
    rest: std::vec::IntoIter<(&'a Field, String)>,
    current: Option<(&'a Field, String)>,
    sink: &'a Sink,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Halt;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Halt> {
        self.current = self.rest.next();
        let Some((field, path)) = &self.current else { return Ok(None) };
        let key = seed.deserialize(StrDeserializer::<Halt>::new(&field.name));
        key.map(Some).map_err(|halt| self.sink.record(halt, field.place, path))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Halt> {
        let Some((field, path)) = self.current.take() else { return Err(Halt(None)) };
        let reader = Reader { node: &field.value, path: path.clone(), sink: self.sink };
        seed.deserialize(reader).map_err(|halt| self.sink.record(halt, field.value.place, &path))
    }
}

struct Items<'a> {
    rest: std::iter::Enumerate<std::slice::Iter<'a, Node>>,
    path: &'a str,
    sink: &'a Sink,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Halt;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Halt> {
        for (index, node) in self.rest.by_ref() {
            let path = format!("{}[{index}]", self.path);
            if !self.sink.is_bad(&path) {
                let reader = Reader { node, path: path.clone(), sink: self.sink };
                return seed
                    .deserialize(reader)
                    .map(Some)
                    .map_err(|halt| self.sink.record(halt, node.place, &path));
            }
        }
        Ok(None)
    }
}

struct Choice<'a>(&'a Scalar);

impl<'de> EnumAccess<'de> for Choice<'_> {
    type Error = Halt;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Halt> {
        let value = seed.deserialize(StrDeserializer::<Halt>::new(&self.0.text))?;
        Ok((value, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'_> {
    type Error = Halt;

    fn unit_variant(self) -> Result<(), Halt> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, Halt> {
        Err(Halt(Some("takes no value".to_owned())))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Halt> {
        Err(Halt(Some("takes no value".to_owned())))
    }

    fn struct_variant<V: Visitor<'de>>(self, _: &'static [&'static str], _: V) -> Result<V::Value, Halt> {
        Err(Halt(Some("takes no value".to_owned())))
    }
}
