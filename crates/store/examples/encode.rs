//! Time of encoding and decoding an entry body and a context: `cargo run --release -p tollbook-store --example encode`.

#![allow(clippy::print_stdout, reason = "an example talks to a person")]

use std::hint::black_box;
use std::time::Instant;

use tollbook_store::{EntryBody, Hold, Name, Usage};

const ROUNDS: u32 = 500_000;

fn main() {
    let name = Name::from;
    let body = EntryBody {
        request_id: name("req_0123456789abcdef0123456789abcdef"),
        tenant: name("acme-corporation"),
        project: name("semantic-search"),
        key: name("key-production-1"),
        model_asked: name("gpt-5-mini"),
        model_priced: name("gpt-5-mini"),
        model_used: name("gpt-5-mini"),
        pool: name("openai-europe"),
        usage: Usage { input: 1_234, cached: 1_024, output: 310, reasoning: 256, ..Usage::default() },
        cost_nano: 1_234_567,
        price_version: 17,
        hold: Hold {
            input_llm_tokens: 1_250,
            expected_llm_tokens: 1_650,
            worst_llm_tokens: 5_346,
            expected_cost_nano: 1_500_000,
            worst_cost_nano: 9_000_000,
            charged_on_expiry: true,
        },
        latency_ms: 2_345,
        ttft_ms: Some(321),
        attempts: 1,
        ..EntryBody::default()
    };
    let bytes = body.encode();
    println!("body {} bytes, context {} bytes", bytes.len(), body.context().len());
    time("encode", || drop(black_box(black_box(&body).encode())));
    time("context", || drop(black_box(black_box(&body).context())));
    time("decode", || drop(black_box(EntryBody::decode(black_box(&bytes)))));
}

fn time(what: &str, work: impl Fn()) {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    println!("{what}: {} ns", start.elapsed().as_nanos() / u128::from(ROUNDS));
}
