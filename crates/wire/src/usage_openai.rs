//! The usage object of the OpenAI dialect and its many relatives.
//!
//! Rules: an object is cumulative, so the last one wins (B050), but for one of zeros after one that is not; behind the
//! terminal marker the first complete one stands; a total for the whole answer beats figures per choice; per choice, prompt counts once and completions add up (B052); one missing member follows from
//! the total (B057); reasoning is inside the completion unless the total proves otherwise (B075, B076).
//! What cannot be believed is dropped field by field and counted.

use crate::json::{Fault, Json, Kind};
use crate::number::Reading;
use crate::usage::{Anomalies, Usage, bump};

/// How a surface calls the two sides of its usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// `prompt_tokens` and `completion_tokens`.
    Prompt,
    /// Also `input_tokens` and `output_tokens`: the responses surface, and what resembles it.
    Both,
}

/// One usage object, field by field.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Figures {
    prompt: Option<u64>,
    completion: Option<u64>,
    total: Option<u64>,
    cached: Option<u64>,
    cache_write: Option<u64>,
    audio_input: Option<u64>,
    image_input: Option<u64>,
    reasoning: Option<u64>,
    audio_output: Option<u64>,
    /// Hosted searches, by whatever name they are told.
    searches: Option<u64>,
    /// Part of the cache writes, with the longer lifetime.
    cache_write_long: Option<u64>,
}

impl Figures {
    /// Reads the value of `usage`; nothing for `null` and for anything that is not an object.
    pub(crate) fn read(
        json: &mut Json<'_>,
        names: Names,
        odd: &mut Anomalies,
    ) -> Result<Option<Self>, Fault> {
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
                "input_tokens" if names == Names::Both => &mut out.prompt,
                "output_tokens" if names == Names::Both => &mut out.completion,
                "input_tokens_details" | "input_token_details" if names == Names::Both => {
                    return json
                        .object_or_skip(|json, key| out.prompt_detail(json, &key.decode(), odd))
                        .map(drop);
                }
                "output_tokens_details" if names == Names::Both => {
                    return json
                        .object_or_skip(|json, key| out.completion_detail(json, &key.decode(), odd))
                        .map(drop);
                }
                "cache_write_tokens_details" if names == Names::Both => return out.cache_writes(json, odd),
                "prompt_tokens" => &mut out.prompt,
                "completion_tokens" => &mut out.completion,
                "total_tokens" => &mut out.total,
                // DeepSeek, Moonshot and SGLang put these beside, not inside, the details.
                "prompt_cache_hit_tokens" | "cached_tokens" => &mut out.cached,
                "reasoning_tokens" => &mut out.reasoning,
                "num_search_queries" | "num_sources_used" | "web_search_requests" => &mut out.searches,
                // Ark counts the calls of its hosted tools; others name them as Anthropic does.
                "tool_usage" | "server_tool_use" => return out.hosted_tools(json, odd),
                "prompt_tokens_details" => {
                    return json
                        .object_or_skip(|json, key| out.prompt_detail(json, &key.decode(), odd))
                        .map(drop);
                }
                "completion_tokens_details" | "output_tokens_details" => {
                    return json
                        .object_or_skip(|json, key| out.completion_detail(json, &key.decode(), odd))
                        .map(drop);
                }
                _ => return json.skip(),
            };
            keep(slot, odd.take(Reading::of(json)?));
            Ok(())
        })?;
        Ok(Some(out))
    }

    fn prompt_detail(&mut self, json: &mut Json<'_>, key: &str, odd: &mut Anomalies) -> Result<(), Fault> {
        let slot = match key {
            "cached_tokens" => &mut self.cached,
            "cache_write_tokens" => &mut self.cache_write,
            "audio_tokens" => &mut self.audio_input,
            "image_tokens" => &mut self.image_input,
            "cache_write_tokens_details" => return self.cache_writes(json, odd),
            _ => return json.skip(),
        };
        keep(slot, odd.take(Reading::of(json)?));
        Ok(())
    }

    /// Cache writes by lifetime: 30 minutes and 12 hours. Prices know a shorter and a longer one.
    fn cache_writes(&mut self, json: &mut Json<'_>, odd: &mut Anomalies) -> Result<(), Fault> {
        json.object_or_skip(|json, key| match key.raw() {
            "ttl_12h_tokens" => {
                keep(&mut self.cache_write_long, odd.take(Reading::of(json)?));
                Ok(())
            }
            _ => json.skip(),
        })
        .map(drop)
    }

    fn hosted_tools(&mut self, json: &mut Json<'_>, odd: &mut Anomalies) -> Result<(), Fault> {
        json.object_or_skip(|json, key| match key.raw() {
            "web_search" | "web_search_requests" => {
                keep(&mut self.searches, odd.take(Reading::of(json)?));
                Ok(())
            }
            _ => json.skip(),
        })
        .map(drop)
    }

    fn completion_detail(
        &mut self,
        json: &mut Json<'_>,
        key: &str,
        odd: &mut Anomalies,
    ) -> Result<(), Fault> {
        let slot = match key {
            "reasoning_tokens" => &mut self.reasoning,
            "audio_tokens" => &mut self.audio_output,
            _ => return json.skip(),
        };
        keep(slot, odd.take(Reading::of(json)?));
        Ok(())
    }

    /// Nothing in it can be used.
    fn is_blank(&self) -> bool {
        self.prompt.is_none() && self.completion.is_none() && self.total.is_none()
    }

    /// It reports that nothing was used.
    fn is_zero(&self) -> bool {
        let counts = [self.prompt, self.completion, self.total, self.reasoning];
        !self.is_blank() && counts.into_iter().flatten().all(|n| n == 0)
    }

    /// Both sides are known, or follow from the total.
    fn is_complete(&self) -> bool {
        [self.prompt, self.completion, self.total].into_iter().flatten().count() >= 2
    }

    /// What these figures mean where nothing is written: all of it is input.
    pub(crate) fn resolve_input(&self, odd: &mut Anomalies) -> Option<Usage> {
        if self.prompt.zip(self.total).is_some_and(|(prompt, total)| prompt != total) {
            bump(&mut odd.inconsistent);
        }
        let mut usage = Usage {
            input: self.prompt.max(self.total)?,
            cached: self.cached.unwrap_or(0),
            cache_write: self.cache_write.unwrap_or(0),
            audio_input: self.audio_input.unwrap_or(0),
            image_input: self.image_input.unwrap_or(0),
            input_reported: true,
            output_reported: true,
            complete: true,
            ..Usage::default()
        };
        usage.fit(odd);
        Some(usage)
    }

    /// The one usage that these figures mean.
    pub(crate) fn resolve(&self, odd: &mut Anomalies) -> Option<Usage> {
        if self.is_blank() {
            return None;
        }
        let reasoning = self.reasoning.unwrap_or(0);
        let mut usage = Usage {
            cached: self.cached.unwrap_or(0),
            cache_write: self.cache_write.max(self.cache_write_long).unwrap_or(0),
            cache_write_1h: self.cache_write_long.unwrap_or(0),
            audio_input: self.audio_input.unwrap_or(0),
            image_input: self.image_input.unwrap_or(0),
            reasoning,
            audio_output: self.audio_output.unwrap_or(0),
            web_searches: self.searches.unwrap_or(0),
            ..Usage::default()
        };
        match (self.prompt, self.completion, self.total) {
            (Some(prompt), Some(completion), total) => {
                usage.input = prompt;
                usage.output = completion + outside(prompt, completion, reasoning, total, odd);
                (usage.input_reported, usage.output_reported) = (true, true);
            }
            (Some(prompt), None, Some(total)) if total >= prompt => {
                (usage.input, usage.output) = (prompt, total - prompt);
                (usage.input_reported, usage.output_reported) = (true, true);
            }
            (None, Some(completion), Some(total)) if total >= completion => {
                (usage.input, usage.output) = (total - completion, completion);
                (usage.input_reported, usage.output_reported) = (true, true);
            }
            (None, None, Some(total)) => {
                usage.input = total;
                usage.split_estimated = true;
                (usage.input_reported, usage.output_reported) = (true, true);
                // The parts belong to sides that are not known.
                (usage.reasoning, usage.audio_output) = (0, 0);
            }
            (prompt, completion, total) => {
                if total.is_some() {
                    bump(&mut odd.inconsistent);
                }
                usage.input = prompt.unwrap_or(0);
                usage.output = completion.unwrap_or(0);
                (usage.input_reported, usage.output_reported) = (prompt.is_some(), completion.is_some());
            }
        }
        usage.fit(odd);
        usage.complete = usage.input_reported && usage.output_reported;
        Some(usage)
    }
}

/// Reasoning that stands beside the completion and must be added to it.
fn outside(prompt: u64, completion: u64, reasoning: u64, total: Option<u64>, odd: &mut Anomalies) -> u64 {
    let inside = prompt + completion;
    match total {
        Some(total) if total == inside => 0,
        Some(total) if reasoning > 0 && total == inside + reasoning => reasoning,
        Some(_) => {
            bump(&mut odd.inconsistent);
            0
        }
        // More reasoning than output cannot be a part of it.
        None if reasoning > completion => reasoning,
        None => 0,
    }
}

/// A detail may be reported in two places; the one that says more is kept.
fn keep(slot: &mut Option<u64>, value: Option<u64>) {
    *slot = (*slot).max(value);
}

/// Merges the usage objects of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamUsage {
    total: Option<Figures>,
    /// Last object per choice index.
    choices: Vec<(u32, Figures)>,
    /// The answer was declared over: what comes now changes nothing that is complete.
    closed: bool,
}

/// Choices that are told apart; figures of further ones are merged into the last.
pub(crate) const CHOICES_MAX: u32 = 128;

impl StreamUsage {
    /// `choice` is the one choice that the chunk carried, if it carried exactly one.
    pub(crate) fn see(&mut self, choice: Option<u32>, figures: Figures, odd: &mut Anomalies) {
        if figures.is_blank() {
            return;
        }
        let choice = choice.map(|index| index.min(CHOICES_MAX - 1));
        // The sums of a whole answer are told before its end. Behind it nobody knows whose they are: what is complete stands.
        if self.closed && self.is_complete() {
            if self.total != Some(figures) {
                bump(&mut odd.inconsistent);
            }
            return;
        }
        if figures.is_zero() && self.is_used(choice) {
            bump(&mut odd.inconsistent);
            return;
        }
        match choice {
            None => self.total = Some(figures),
            Some(index) => match self.choices.binary_search_by_key(&index, |(i, _)| *i) {
                Ok(n) => {
                    if let Some(slot) = self.choices.get_mut(n) {
                        slot.1 = figures;
                    }
                }
                Err(n) => self.choices.insert(n, (index, figures)),
            },
        }
    }

    /// The terminal marker was seen.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    fn is_complete(&self) -> bool {
        let all = || self.choices.iter().all(|(_, figures)| figures.is_complete());
        match &self.total {
            Some(total) => total.is_complete(),
            None => !self.choices.is_empty() && all(),
        }
    }

    /// Something was used by what figures for `choice` would replace; those for the whole replace all.
    fn is_used(&self, choice: Option<u32>) -> bool {
        let mut choices = self.choices.iter().filter(|(i, _)| choice.is_none_or(|index| index == *i));
        choices.any(|(_, figures)| !figures.is_zero())
            || choice.is_none() && self.total.is_some_and(|total| !total.is_zero())
    }

    /// The usage so far. `ended` says that the answer is complete.
    pub(crate) fn resolve(&self, ended: bool, odd: &mut Anomalies) -> Option<Usage> {
        if let Some(total) = &self.total {
            return total.resolve(odd);
        }
        let (first, rest) = self.choices.split_first()?;
        let mut usage = first.1.resolve(odd)?;
        for more in rest.iter().filter_map(|(_, figures)| figures.resolve(odd)) {
            usage.input = usage.input.max(more.input);
            usage.cached = usage.cached.max(more.cached);
            usage.cache_write = usage.cache_write.max(more.cache_write);
            usage.output = usage.output.saturating_add(more.output);
            usage.reasoning = usage.reasoning.saturating_add(more.reasoning);
            usage.audio_output = usage.audio_output.saturating_add(more.audio_output);
            usage.web_searches = usage.web_searches.max(more.web_searches);
        }
        // Summed figures of several choices are ours, not the provider's.
        usage.complete &= ended && rest.is_empty();
        Some(usage)
    }
}
