//! The three pictures of a replay, as SVG.

use std::fmt::Write as _;

use super::{Plot, place};
use crate::counts::{figure, wide};
use crate::table::{grouped, percent};

const WIDTH: f64 = 860.0;
/// Room for the numbers on the left.
const LEFT: f64 = 64.0;
const RIGHT: f64 = 10.0;
/// Room for the numbers below.
const BELOW: f64 = 22.0;
const ABOVE: f64 = 8.0;
const INNER: f64 = WIDTH - LEFT - RIGHT;

/// What landed in every exact 60 s, against the limit.
pub(super) struct Landed<'a> {
    pub(super) plot: &'a Plot,
    /// Tells its parts from those of other pictures of the page.
    pub(super) number: usize,
    /// Amount at the top.
    pub(super) top: u64,
    pub(super) warm_up: u64,
}

impl Landed<'_> {
    const HEIGHT: f64 = 250.0;

    fn y(&self, amount: u64) -> f64 {
        let inner = Self::HEIGHT - ABOVE - BELOW;
        ABOVE + inner * (1.0 - (figure(amount) / figure(self.top)).min(1.0))
    }

    pub(super) fn draw(&self, out: &mut String) {
        let plot = self.plot;
        let asked = plot.columns.iter().map(|column| column.demand).max().unwrap_or(0);
        let times = figure(asked) / figure(plot.limit.max(1));
        // Writing into a string cannot fail.
        let _ = write!(
            out,
            "<figure><figcaption>llm_tokens landed in the last exact 60 s\
             <i style=\"background:var(--landed)\"></i>landed<i style=\"background:var(--over)\"></i>above the limit\
             <i style=\"background:var(--demand)\"></i>asked for, up to {times:.1} × the limit</figcaption>"
        );
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"llm_tokens landed\">",
            Self::HEIGHT
        );
        let floor = self.y(0);
        let warm = x(self.warm_up.min(plot.until), plot.until) - LEFT;
        let _ = write!(
            out,
            "<rect x=\"{LEFT}\" y=\"{ABOVE}\" width=\"{warm:.1}\" height=\"{:.1}\" fill=\"var(--line)\" fill-opacity=\".35\">\
             <title>warm-up: not judged</title></rect>",
            floor - ABOVE
        );
        for amount in steps(self.top, 4) {
            rule(out, self.y(amount), &short(amount));
        }
        times_below(out, plot.until, Self::HEIGHT);
        let demand = self.path(|column| column.demand);
        let _ =
            write!(out, "<path d=\"{demand}\" fill=\"none\" stroke=\"var(--demand)\" stroke-width=\"1\"/>");
        let landed = self.path(|column| column.landed);
        let limit = self.y(plot.limit);
        // What is above the limit is the same line, seen through a window of its own.
        let clip = format!("above-{}", self.number);
        let _ = write!(
            out,
            "<path d=\"{landed}L{:.1} {floor:.1}L{LEFT} {floor:.1}Z\" fill=\"var(--fill)\"/>\
             <path d=\"{landed}\" fill=\"none\" stroke=\"var(--landed)\" stroke-width=\"1.5\"/>\
             <clipPath id=\"{clip}\"><rect x=\"{LEFT}\" y=\"0\" width=\"{INNER}\" height=\"{limit:.1}\"/></clipPath>\
             <path d=\"{landed}\" fill=\"none\" stroke=\"var(--over)\" stroke-width=\"2\" clip-path=\"url(#{clip})\"/>",
            WIDTH - RIGHT
        );
        let _ = write!(
            out,
            "<path d=\"M{LEFT} {limit:.1}H{:.1}\" stroke=\"var(--limit)\" stroke-dasharray=\"5 4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" class=\"limit\">limit {}</text>",
            WIDTH - RIGHT,
            WIDTH - RIGHT - 2.0,
            limit - 5.0,
            grouped(plot.limit)
        );
        self.hits(out, floor);
        out.push_str("</svg></figure>");
    }

    fn path(&self, of: impl Fn(&super::Column) -> u64) -> String {
        let mut path = String::new();
        let width = INNER / figure(wide(self.plot.columns.len()).max(1));
        for (at, column) in self.plot.columns.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let x = LEFT + width * (figure(wide(at)) + 0.5);
            let _ = write!(path, "{letter}{x:.1} {:.1}", self.y(of(column)));
        }
        path
    }

    /// What a pointer reads.
    fn hits(&self, out: &mut String, floor: f64) {
        const TOGETHER: usize = 4;
        let width = INNER * figure(wide(TOGETHER)) / figure(wide(self.plot.columns.len()).max(1));
        for (at, columns) in self.plot.columns.chunks(TOGETHER).enumerate() {
            let most = |of: fn(&super::Column) -> u64| columns.iter().map(of).max().unwrap_or(0);
            let (landed, demand) = (most(|column| column.landed), most(|column| column.demand));
            let begins = self.plot.until * wide(at * TOGETHER) / wide(self.plot.columns.len()).max(1);
            let _ = write!(
                out,
                "<rect class=\"hit\" x=\"{:.1}\" y=\"{ABOVE}\" width=\"{width:.1}\" height=\"{:.1}\"><title>{}: {} landed, {} \
                 of the limit; {} asked for</title></rect>",
                LEFT + width * figure(wide(at)),
                floor - ABOVE,
                clock(begins),
                grouped(landed),
                percent(figure(landed) / figure(self.plot.limit.max(1)), 1),
                grouped(demand)
            );
        }
    }
}

/// Calls refused over time.
pub(super) struct Refused<'a> {
    pub(super) plot: &'a Plot,
    /// Calls at the top.
    pub(super) top: u64,
}

impl Refused<'_> {
    const HEIGHT: f64 = 130.0;

    pub(super) fn draw(&self, out: &mut String) {
        let bars = &self.plot.bars;
        let each = self.plot.until / wide(bars.len()).max(1);
        let _ = write!(
            out,
            "<figure><figcaption>calls refused, per {}<i style=\"background:var(--refused)\"></i>refused\
             <i style=\"background:var(--needless)\"></i>falsely</figcaption>",
            span(each)
        );
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"calls refused\">",
            Self::HEIGHT
        );
        let most = self.top;
        let inner = Self::HEIGHT - ABOVE - BELOW;
        let y = |count: u64| ABOVE + inner * (1.0 - figure(count) / figure(most));
        for count in steps(most, 2) {
            rule(out, y(count), &short(count));
        }
        times_below(out, self.plot.until, Self::HEIGHT);
        let width = INNER / figure(wide(bars.len()).max(1));
        for (at, bar) in bars.iter().enumerate().filter(|(_, bar)| bar.refused > 0) {
            let x = LEFT + width * figure(wide(at));
            let mut part = |from: u64, to: u64, colour: &str| {
                let _ = write!(
                    out,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"var(--{colour})\"/>",
                    x + 0.5,
                    y(to),
                    width - 1.0,
                    y(from) - y(to)
                );
            };
            part(0, bar.needless, "needless");
            part(bar.needless, bar.refused, "refused");
            let _ = write!(
                out,
                "<rect class=\"hit\" x=\"{x:.1}\" y=\"{ABOVE}\" width=\"{width:.1}\" height=\"{inner:.1}\"><title>{}: {} refused, \
                 {} of them falsely</title></rect>",
                clock(each * wide(at)),
                grouped(bar.refused),
                grouped(bar.needless)
            );
        }
        out.push_str("</svg></figure>");
    }
}

/// Expected against actual output, both on logarithmic axes.
pub(super) struct Scatter<'a> {
    pub(super) plot: &'a Plot,
    /// The largest output that both axes reach.
    pub(super) top: u64,
}

impl Scatter<'_> {
    const SIDE: f64 = 380.0;
    const MARGIN: f64 = 44.0;

    pub(super) fn draw(&self, out: &mut String) {
        let _ = write!(
            out,
            "<figure><figcaption>output: expected against actual; {} of the calls used more</figcaption>",
            percent(self.plot.outgrown, 1)
        );
        let side = Self::SIDE;
        let _ = write!(
            out,
            "<svg viewBox=\"0 0 {side} {side}\" role=\"img\" aria-label=\"expected against actual output\">"
        );
        let decades = (1..=7_u32).find(|power| 10_u64.pow(*power) > self.top).unwrap_or(7);
        let inner = side - Self::MARGIN - ABOVE - 4.0;
        // One is added, so that nothing stands at the origin.
        let part = |value: u64| inner * (figure(value) + 1.0).log10() / f64::from(decades);
        let (x, y) = (|value: u64| Self::MARGIN + part(value), |value: u64| ABOVE + inner - part(value));
        let (near, far) = (Self::MARGIN, Self::MARGIN + inner);
        for power in 0..=decades {
            let value = 10_u64.pow(power);
            let place = value.saturating_sub(1);
            let _ = write!(
                out,
                "<path class=\"grid\" d=\"M{near:.1} {y:.1}H{far:.1}M{x:.1} {ABOVE}V{bottom:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                near - 6.0,
                y(place) + 4.0,
                ABOVE + inner + 15.0,
                y = y(place),
                x = x(place),
                bottom = ABOVE + inner,
                label = short(if power == 0 { 0 } else { value }),
            );
        }
        let _ = write!(
            out,
            "<path d=\"M{near:.1} {:.1}L{far:.1} {ABOVE}\" stroke=\"var(--limit)\" stroke-dasharray=\"5 4\"/>\
             <text x=\"{far:.1}\" y=\"{:.1}\" text-anchor=\"end\">actual</text>\
             <text x=\"{:.1}\" y=\"{:.1}\">expected</text><g fill=\"var(--point)\" fill-opacity=\".28\">",
            ABOVE + inner,
            ABOVE + inner + 30.0,
            near + 6.0,
            ABOVE + 12.0
        );
        for (expected, actual) in &self.plot.points {
            let _ = write!(out, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.2\"/>", x(*actual), y(*expected));
        }
        out.push_str("</g></svg></figure>");
    }
}

fn x(time: u64, until: u64) -> f64 {
    const FINE: usize = 100_000;
    LEFT + INNER * figure(wide(place(time, until, FINE).min(FINE))) / figure(wide(FINE))
}

fn rule(out: &mut String, y: f64, label: &str) {
    let _ = write!(
        out,
        "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        WIDTH - RIGHT,
        LEFT - 8.0,
        y + 4.0
    );
}

fn times_below(out: &mut String, until: u64, height: f64) {
    let seconds = until / 1_000_000;
    let step = [10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800]
        .into_iter()
        .find(|step| seconds / step <= 10)
        .unwrap_or(2_592_000);
    for time in (0..=seconds).step_by(usize::try_from(step).unwrap_or(1)) {
        let place = x(time * 1_000_000, until);
        let _ = write!(
            out,
            "<text x=\"{place:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - 6.0,
            clock(time * 1_000_000)
        );
    }
}

/// Round amounts from 0 up to a most, about so many.
fn steps(most: u64, about: u64) -> Vec<u64> {
    let least = (most / about.max(1)).max(1);
    let power = 10_u64.saturating_pow(least.ilog10());
    let step = [1, 2, 5, 10].into_iter().map(|times| power.saturating_mul(times)).find(|step| *step >= least);
    let step = step.unwrap_or(least);
    (0..=most / step).map(|times| times * step).collect()
}

/// `1200000` as `1.2M`.
fn short(amount: u64) -> String {
    let (unit, name) = match amount {
        0..1_000 => return amount.to_string(),
        1_000..1_000_000 => (1_000, "k"),
        1_000_000..1_000_000_000 => (1_000_000, "M"),
        _ => (1_000_000_000, "G"),
    };
    let tenths = amount / (unit / 10);
    if tenths.is_multiple_of(10) {
        format!("{}{name}", grouped(tenths / 10))
    } else {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    }
}

/// A time within a trace: `4:05`, `1:04:05`.
fn clock(time: u64) -> String {
    let seconds = time / 1_000_000;
    let (hours, minutes, seconds) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if hours == 0 { format!("{minutes}:{seconds:02}") } else { format!("{hours}:{minutes:02}:{seconds:02}") }
}

/// A length of time, roughly.
fn span(time: u64) -> String {
    let seconds = time.div_ceil(1_000_000);
    if seconds < 120 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_round_numbers() {
        assert_eq!(steps(0, 4), [0]);
        assert_eq!(steps(9, 2), [0, 5]);
        assert_eq!(steps(480_000, 4), [0, 200_000, 400_000]);
        assert_eq!([0, 999, 1_000, 1_250, 2_000_000].map(short), ["0", "999", "1k", "1.2k", "2M"]);
        assert_eq!([0, 65_000_000, 3_661_000_000].map(clock), ["0:00", "1:05", "1:01:01"]);
    }
}
