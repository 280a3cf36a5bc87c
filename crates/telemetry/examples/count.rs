//! Time of one count: `cargo run --release -p tollbook-telemetry --example count`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use tollbook_telemetry::labels::{Dialect, Ending, Form, Surface};
use tollbook_telemetry::{Metrics, ModelLabel};

const ROUNDS: u32 = 5_000_000;

fn main() {
    let metrics = Metrics::new();
    metrics.models_set(["gpt-5", "haiku"]);
    let model: ModelLabel = metrics.label("haiku");
    let labels = (Dialect::OpenAi, Surface::Chat, Ending::Complete);
    time("counter, three labels", || metrics.calls_ended.inc(black_box(labels)));
    time("counter, no label", || metrics.settle_late.inc(()));
    time("gauge guard", || drop(metrics.calls_streams_open.enter(())));
    let micros = Duration::from_micros(37);
    let form = (Surface::Chat, Form::Stream);
    time("histogram, two labels", || metrics.calls_overhead.observe(form, black_box(micros)));
    time("histogram, a model", || metrics.calls_ttft.observe((model,), black_box(micros)));
    time("label of a name", || {
        let _ = black_box(metrics.label::<ModelLabel>(black_box("haiku")));
    });
}

fn time(what: &str, work: impl Fn()) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(ROUNDS));
}
