//! The verbs as Lua: each is the shared parts and its own file, called by SHA.
//!
//! The parts are functions of one prelude (`lua/base.lua` first); a verb gets those it needs. The clock is the server's `TIME`. Tests may bring
//! their own in an argument: that text exists in their build alone. The last two arguments of every call are the epoch that
//! its gateway expects and the server's `run_id`.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::link::Script;

const TIME: &str = "local time = call('TIME')
local now = time[1] * 1000000 + time[2]
";

#[cfg(feature = "test-clock")]
const GIVEN: &str = "local now = tonumber(ARGV[#ARGV - 2])\n";

/// Before all: what the clock's text needs.
const HEAD: &str = include_str!("../lua/head.lua");

/// Where a verb's time comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClockSource {
    Server,
    #[cfg(feature = "test-clock")]
    Given,
}

impl ClockSource {
    fn text(self) -> &'static str {
        match self {
            Self::Server => TIME,
            #[cfg(feature = "test-clock")]
            Self::Given => GIVEN,
        }
    }
}

macro_rules! parts {
    ($($part:ident)+) => {
        &[$(include_str!(concat!("../lua/", stringify!($part), ".lua"))),+]
    };
}

macro_rules! scripts {
    ($($verb:ident: $($part:ident)+;)+) => {
        /// All verbs.
        #[derive(Debug)]
        pub(crate) struct Scripts {
            $(pub(crate) $verb: Script,)+
        }

        impl Scripts {
            fn new(clock: ClockSource) -> Self {
                let script = |parts: &[&str]| Script::new(&assemble(&[&[HEAD, clock.text()], parts].concat()));
                Self { $($verb: script(parts!($($part)+ $verb)),)+ }
            }
        }
    };
}

impl Scripts {
    /// Assembled once for all engines of a process.
    pub(crate) fn of(clock: ClockSource) -> &'static Self {
        static SERVER: OnceLock<Scripts> = OnceLock::new();
        #[cfg(feature = "test-clock")]
        static GIVEN: OnceLock<Scripts> = OnceLock::new();
        match clock {
            ClockSource::Server => SERVER.get_or_init(|| Self::new(clock)),
            #[cfg(feature = "test-clock")]
            ClockSource::Given => GIVEN.get_or_init(|| Self::new(clock)),
        }
    }
}

// Each verb with the parts it needs: making a function costs time in every call, whether it is used or not. The quick
// ways come first: what follows them is not even made when they answer.
scripts! {
    reserve: quick quick_reserve base account track estimate book plan;
    rebook: base account track estimate book finish plan;
    renew: base account track estimate book;
    progress: base account track book;
    settle: quick quick_settle base account track estimate book finish;
    expire: base account track book finish;
    adjust: base account track book;
    balances: base account track book;
    demands: base account track estimate book plan;
    due: base account track book;
    check: base account track book;
    holds: base account track book;
    repair: base account track book;
    prune: base account track estimate;
    state: base;
    show: base account track book;
    clear: base account track book;
    begin: base;
    open: base;
    sums: base account track book;
    restore: base account track estimate book finish plan;
    survey: base account track estimate book;
}

/// One text of the parts: without comments, and with the value of each `const` in place of its name. The names would be
/// more variables than Lua lets a script have, and cost time in every call.
pub(crate) fn assemble(parts: &[&str]) -> String {
    let lines = || parts.iter().flat_map(|part| part.lines());
    let mut values: BTreeMap<&str, &str> = BTreeMap::new();
    for line in lines() {
        if let Some((names, given)) = line.strip_prefix("const ").and_then(|rest| rest.split_once(" = ")) {
            values.extend(names.split(", ").zip(given.split(", ")));
        }
    }
    let mut text = String::new();
    for line in lines().filter(|line| !line.starts_with("const ")) {
        let line = line.split_once("--").map_or(line, |(code, _)| code).trim();
        if !line.is_empty() {
            replace(line, &values, &mut text);
            text.push('\n');
        }
    }
    text
}

/// The line with every name that is a constant's, whole, replaced by its value.
fn replace(line: &str, values: &BTreeMap<&str, &str>, into: &mut String) {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut rest = line;
    while let Some(start) = rest.find(is_word) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
        into.push_str(before);
        match values.get(word) {
            Some(value) if !before.ends_with(['.', '\'']) => {
                into.push('(');
                replace(value, values, into);
                into.push(')');
            }
            _ => into.push_str(word),
        }
        rest = after;
    }
    into.push_str(rest);
}

#[cfg(test)]
mod tests {
    use super::{ClockSource, Scripts, assemble};

    #[test]
    fn constants_are_replaced_by_their_values() {
        let parts =
            ["const A, B = 1, 2 * A\n-- a comment about A\n", "x = A + AB.A + 'A' -- more\n\ny[B] = _A"];
        assert_eq!(assemble(&parts), "x = (1) + AB.A + 'A'\ny[(2 * (1))] = _A\n");
    }

    #[test]
    fn no_constant_is_left_over() {
        let scripts = Scripts::new(ClockSource::Server);
        assert!(!scripts.reserve.text().contains("const "));
        assert!(!scripts.reserve.text().contains("H_HELD"));
    }
}
