//! Puts environment variables into a file's scalars: `${NAME}`, and `${NAME:-default}`.
//!
//! Only values are looked at, never names of fields. `$${` stands for a literal `${`; any other `$` is left alone.
//! A variable that is unset and has no default is a mistake. A value from the environment never shows in a message.

use super::node::{Kind, Node, Scalar};
use super::problem::{Place, Problem};

/// Looks a variable up; `None` if it is unset.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces every variable in the tree, and collects what could not be replaced.
pub(super) fn interpolate(node: &mut Node, path: &str, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    match &mut node.kind {
        Kind::Scalar(scalar) => scalar_in(scalar, node.place, path, lookup, problems),
        Kind::List(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                interpolate(item, &format!("{path}[{index}]"), lookup, problems);
            }
        }
        Kind::Map(fields) => {
            for field in fields {
                let inner =
                    if path.is_empty() { field.name.clone() } else { format!("{path}.{}", field.name) };
                interpolate(&mut field.value, &inner, lookup, problems);
            }
        }
    }
}

fn scalar_in(scalar: &mut Scalar, place: Place, path: &str, lookup: Lookup<'_>, problems: &mut Vec<Problem>) {
    if !scalar.text.contains("${") {
        return;
    }
    match expand(&scalar.text, lookup) {
        Ok(text) => scalar.written = Some(std::mem::replace(&mut scalar.text, text)),
        Err(trouble) => {
            let (what, help) = trouble.words();
            problems.push(Problem { place, path: path.to_owned(), what, help });
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Trouble {
    Unset(String),
    Unclosed,
    Name(String),
}

impl Trouble {
    fn words(self) -> (String, String) {
        match self {
            Self::Unset(name) => (
                format!("environment variable {name} is not set"),
                format!("set it, or give a default as ${{{name}:-default}}"),
            ),
            Self::Unclosed => ("`${` without `}`".to_owned(), "write $${ for a literal ${".to_owned()),
            Self::Name(name) => (
                format!("`{name}` cannot be an environment variable"),
                "use letters, digits and underscores".to_owned(),
            ),
        }
    }
}

fn expand(text: &str, lookup: Lookup<'_>) -> Result<String, Trouble> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(literal) = before.strip_suffix('$') {
            out.push_str(literal);
            out.push_str("${");
            rest = after;
            continue;
        }
        out.push_str(before);
        let (inside, next) = after.split_once('}').ok_or(Trouble::Unclosed)?;
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        if !is_name(name) {
            return Err(Trouble::Name(name.to_owned()));
        }
        // As in a shell, `:-` also replaces a variable that is set to nothing.
        let value = lookup(name).filter(|value| default.is_none() || !value.is_empty());
        match (value, default) {
            (Some(value), _) => out.push_str(&value),
            (None, Some(default)) => out.push_str(default),
            (None, None) => return Err(Trouble::Unset(name.to_owned())),
        }
        rest = next;
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "KEY" => Some("s3cret".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn variables_and_defaults() {
        let rows = [
            ("plain", "plain"),
            ("${KEY}", "s3cret"),
            ("a${KEY}b${KEY}", "as3cretbs3cret"),
            ("${NONE:-five}", "five"),
            ("${NONE:-}", ""),
            ("${EMPTY:-five}", "five"),
            ("${EMPTY}", ""),
            ("${KEY:-five}", "s3cret"),
            ("$${KEY}", "${KEY}"),
            ("cost $5 and $KEY", "cost $5 and $KEY"),
            ("${NONE:-http://h:1/p}", "http://h:1/p"),
        ];
        for (text, want) in rows {
            assert_eq!(expand(text, &lookup), Ok(want.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced() {
        assert_eq!(expand("${NONE}", &lookup), Err(Trouble::Unset("NONE".to_owned())));
        assert_eq!(expand("${KEY", &lookup), Err(Trouble::Unclosed));
        assert_eq!(expand("${}", &lookup), Err(Trouble::Name(String::new())));
        assert_eq!(expand("${1A}", &lookup), Err(Trouble::Name("1A".to_owned())));
        assert_eq!(expand("${A B}", &lookup), Err(Trouble::Name("A B".to_owned())));
    }
}
