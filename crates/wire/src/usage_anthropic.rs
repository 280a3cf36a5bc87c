//! The usage object of the Anthropic dialect, spread over `message_start` and `message_delta`.
//!
//! Rule, field by field: a later positive value replaces the earlier one; absent, null, 0 and what cannot be
//! believed keep it. Totals are always computed from the merged parts, never merged themselves.

use crate::json::{Fault, Json, Kind};
use crate::number::{Reading, USAGE_FIELD_MAX};
use crate::usage::{Anomalies, Usage, bump};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Figures {
    /// What rounds beside the answer used (compaction, an advisor): billed, and in no other figure.
    beside: Rounds,
    /// Neither read from nor written to the cache.
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    write_5m: Option<u64>,
    write_1h: Option<u64>,
    output: Option<u64>,
    thinking: Option<u64>,
    web_searches: Option<u64>,
}

/// Sums over the rounds that the totals leave out.
#[derive(Debug, Clone, Copy, Default)]
struct Rounds {
    input: u64,
    cache_read: u64,
    cache_write: u64,
    output: u64,
}

impl Rounds {
    fn is_empty(&self) -> bool {
        self.input == 0 && self.cache_read == 0 && self.cache_write == 0 && self.output == 0
    }

    /// One element of `iterations`.
    fn read_one(&mut self, json: &mut Json<'_>, odd: &mut Anomalies) -> Result<(), Fault> {
        let mut one = Self::default();
        let mut beside = false;
        json.object_or_skip(|json, key| {
            let key = key.decode();
            let slot = match &*key {
                "type" => {
                    let kind = json.string_or_skip()?;
                    let told = |word: &str| word.starts_with("compaction") || word.starts_with("advisor");
                    beside = kind.is_some_and(|kind| kind.with(told));
                    return Ok(());
                }
                "input_tokens" => &mut one.input,
                "cache_read_input_tokens" => &mut one.cache_read,
                "cache_creation_input_tokens" => &mut one.cache_write,
                "output_tokens" => &mut one.output,
                _ => return json.skip(),
            };
            *slot = odd.take(Reading::of(json)?).unwrap_or(0);
            Ok(())
        })?;
        if beside {
            let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more).min(USAGE_FIELD_MAX);
            add(&mut self.input, one.input);
            add(&mut self.cache_read, one.cache_read);
            add(&mut self.cache_write, one.cache_write);
            add(&mut self.output, one.output);
        }
        Ok(())
    }
}

impl Figures {
    pub(crate) fn read(json: &mut Json<'_>, odd: &mut Anomalies) -> Result<Option<Self>, Fault> {
        match json.kind()? {
            Kind::Object => {}
            Kind::Null => {
                json.null()?;
                return Ok(None);
            }
            _ => {
                json.skip()?;
                bump(&mut odd.malformed);
                return Ok(None);
            }
        }
        let mut out = Self::default();
        json.object(|json, key| {
            let key = key.decode();
            let slot = match &*key {
                "input_tokens" => &mut out.input,
                "cache_read_input_tokens" => &mut out.cache_read,
                "cache_creation_input_tokens" => &mut out.cache_write,
                "output_tokens" => &mut out.output,
                "cache_creation" | "output_tokens_details" | "server_tool_use" => {
                    return json.object_or_skip(|json, key| out.detail(json, &key.decode(), odd)).map(drop);
                }
                "iterations" => {
                    return json.array_or_skip(|json| out.beside.read_one(json, odd)).map(drop);
                }
                _ => return json.skip(),
            };
            *slot = odd.take(Reading::of(json)?);
            Ok(())
        })?;
        Ok(Some(out))
    }

    fn detail(&mut self, json: &mut Json<'_>, key: &str, odd: &mut Anomalies) -> Result<(), Fault> {
        let slot = match key {
            "ephemeral_5m_input_tokens" => &mut self.write_5m,
            "ephemeral_1h_input_tokens" => &mut self.write_1h,
            "thinking_tokens" => &mut self.thinking,
            "web_search_requests" => &mut self.web_searches,
            _ => return json.skip(),
        };
        *slot = odd.take(Reading::of(json)?);
        Ok(())
    }

    pub(crate) fn reports_output(&self) -> bool {
        self.output.is_some_and(|n| n > 0)
    }

    /// Takes a later object in.
    pub(crate) fn merge(&mut self, later: &Self) {
        let positive = |n: Option<u64>| n.filter(|n| *n > 0);
        // The lifetimes belong to the total they came with: an older split must not outlive it.
        if positive(later.write_5m).or(positive(later.write_1h)).is_some() {
            (self.write_5m, self.write_1h) = (later.write_5m, later.write_1h);
        } else if positive(later.cache_write).is_some_and(|n| self.cache_write != Some(n)) {
            (self.write_5m, self.write_1h) = (None, None);
        }
        let take = |old: &mut Option<u64>, new: Option<u64>| *old = positive(new).or((*old).or(new));
        take(&mut self.input, later.input);
        take(&mut self.cache_read, later.cache_read);
        take(&mut self.cache_write, later.cache_write);
        take(&mut self.output, later.output);
        take(&mut self.thinking, later.thinking);
        take(&mut self.web_searches, later.web_searches);
        if !later.beside.is_empty() {
            self.beside = later.beside;
        }
    }

    /// The one usage that the merged figures mean. `ended`: the answer is complete and its output was counted.
    pub(crate) fn resolve(&self, ended: bool, odd: &mut Anomalies) -> Option<Usage> {
        let beside = &self.beside;
        let with = |figure: Option<u64>, more: u64| figure.unwrap_or(0).saturating_add(more);
        let (read, write) =
            (with(self.cache_read, beside.cache_read), with(self.cache_write, beside.cache_write));
        let (short, hour) = (self.write_5m.unwrap_or(0), self.write_1h.unwrap_or(0));
        if self.input.is_none() && self.output.is_none() && read == 0 && write == 0 {
            return None;
        }
        let write = if write == 0 { short.saturating_add(hour) } else { write };
        if short.saturating_add(hour) > write {
            bump(&mut odd.inconsistent);
        }
        let mut usage = Usage {
            input: with(self.input, beside.input).saturating_add(read).saturating_add(write),
            cached: read,
            cache_write: write,
            cache_write_1h: hour,
            output: with(self.output, beside.output),
            reasoning: self.thinking.unwrap_or(0),
            web_searches: self.web_searches.unwrap_or(0),
            input_reported: self.input.is_some() || read > 0 || write > 0,
            output_reported: self.output.is_some(),
            ..Usage::default()
        };
        usage.fit(odd);
        usage.complete = ended && usage.input_reported && usage.output_reported;
        Some(usage)
    }
}
