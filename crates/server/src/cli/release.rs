//! `tollbook release`: frees what a call holds that nobody ends, through a gateway's operators' listener.

use http::Method;
use serde_json::json;

use super::args::Release;
use super::objects::Session;
use super::{Console, Failure};
use crate::text::escaped;

pub(super) fn run(args: &Release, console: &mut Console<'_>) -> Result<(), Failure> {
    let path = format!("holds/{}/release", escaped(&args.id));
    let order = json!({"reason": args.reason});
    let answer = &Session::new(&args.operators)?.send(Method::POST, &path, Some(&order))?;
    if args.json {
        return super::json(console, answer);
    }
    for side in answer["released"].as_array().into_iter().flatten() {
        let word = |name: &str| side[name].as_str().filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        let age = side["age_ms"].as_u64().unwrap_or(0) / 1_000;
        let charged = match side["charged"].as_array().map_or(0, Vec::len) {
            0 => "nothing is charged".to_owned(),
            count => format!("charged to quotas: {count}"),
        };
        writeln!(
            console.out,
            "freed the {} side of {}: key {}, model {}, {age} s old; {charged}",
            word("side"),
            args.id,
            word("key"),
            word("model"),
        )?;
    }
    Ok(())
}
