//! Reading traces: what is taken, and which line is named when one is not.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tollbook_simulate::trace::{
    ARRIVAL_MAX_S, KEY_BYTES_MAX, KEYS_MAX, LINE_BYTES_MAX, LLM_TOKENS_MAX, Row, Trace, TraceError,
};

const HEAD: &str = "arrival_s,input_tokens,output_tokens\n";

fn read(bytes: &[u8]) -> Result<Trace, TraceError> {
    Trace::read("t.csv", bytes)
}

/// The error of a text, which must be refused.
fn refused(text: &str) -> String {
    match read(text.as_bytes()) {
        Ok(trace) => panic!("{text:?} was taken: {trace:?}"),
        Err(error) => error.to_string(),
    }
}

fn row(arrival: u64, input: u64, output: u64, key: u32) -> Row {
    Row { arrival, input, output, key, max_tokens: None }
}

fn packed(text: &str) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn a_plain_trace() {
    let trace = read(format!("{HEAD}0,10,20\n1.5,0,0\n1.5,3,4").as_bytes()).unwrap();
    assert_eq!(trace.rows, [row(0, 10, 20, 0), row(1_500_000, 0, 0, 0), row(1_500_000, 3, 4, 0)]);
    assert_eq!((trace.keys, trace.knows_caps), (vec![String::new()], false));
}

#[test]
fn columns_in_any_order_beside_others() {
    let text = "output_tokens, key ,model,max_tokens,arrival_s,input_tokens\n5,a,m,,0.1234567,7\n6,b,m,9,2,8\n7,a,m,0,2,8\n";
    let trace = read(text.as_bytes()).unwrap();
    assert_eq!(trace.keys, ["a", "b"]);
    assert!(trace.knows_caps);
    let caps: Vec<Option<u64>> = trace.rows.iter().map(|row| row.max_tokens).collect();
    assert_eq!(caps, [None, Some(9), Some(0)]);
    assert_eq!(trace.rows[0].arrival, 123_456);
    assert_eq!((trace.rows[1].input, trace.rows[1].output, trace.rows[2].key), (8, 6, 0));
}

#[test]
fn a_session_names_a_key_and_a_key_goes_before_it() {
    let keys = |text: &str| read(text.as_bytes()).unwrap().keys;
    assert_eq!(keys("arrival_s,input_tokens,output_tokens,session\n0,1,1,s\n"), ["s"]);
    assert_eq!(keys("arrival_s,session,input_tokens,output_tokens,key\n0,s,1,1,k\n"), ["k"]);
}

#[test]
fn byte_order_mark_carriage_returns_and_a_last_empty_line() {
    let text = "\u{feff}arrival_s,input_tokens,output_tokens\r\n0,1,2\r\n3,4,5\r\n\r\n";
    assert_eq!(read(text.as_bytes()).unwrap().rows, [row(0, 1, 2, 0), row(3_000_000, 4, 5, 0)]);
}

#[test]
fn quoted_fields() {
    let text = "key,\"arrival_s\",input_tokens,output_tokens\n\"a, \"\"b\"\"\",0,\"1\",2\n";
    let trace = read(text.as_bytes()).unwrap();
    assert_eq!((trace.keys, trace.rows), (vec!["a, \"b\"".to_owned()], vec![row(0, 1, 2, 0)]));
    assert!(refused("key,arrival_s,input_tokens,output_tokens\n\"a,0,1,2\n").contains("t.csv:2: "));
    assert!(refused("key,arrival_s,input_tokens,output_tokens\n\"a\"b,0,1,2\n").contains("t.csv:2: "));
}

#[test]
fn what_is_written_is_read_again() {
    let text = "arrival_s,input_tokens,output_tokens,key,max_tokens\n0.000001,1,2,\"a,\"\"\",\n9,3,4,b,7\n";
    let trace = read(text.as_bytes()).unwrap();
    assert_eq!(read(trace.csv().as_bytes()).unwrap(), trace);
    let plain = read(format!("{HEAD}5,1,2\n").as_bytes()).unwrap();
    assert_eq!(plain.csv(), format!("{HEAD}5.000000,1,2\n"));
}

#[test]
fn the_line_is_named() {
    for (text, want) in [
        ("", "t.csv:1: the file is empty"),
        (HEAD, "t.csv:1: no call follows the header"),
        ("arrival_s,input_tokens\n0,1\n", "t.csv:1: no column output_tokens;"),
        ("0,1,2\n", "t.csv:1: no column arrival_s;"),
        ("arrival_s,input_tokens,output_tokens,arrival_s\n", "t.csv:1: the column arrival_s stands twice"),
        ("arrival_s,input_tokens,output_tokens\n0,1,2\n0,1\n", "t.csv:3: 2 fields where the header has 3"),
        ("arrival_s,input_tokens,output_tokens\n0,1,2,\n", "t.csv:2: 4 fields"),
        ("arrival_s,input_tokens,output_tokens\n0,1,2\n\n1,1,2\n", "t.csv:3: an empty line"),
        ("arrival_s,input_tokens,output_tokens\n2,1,2\n1.9,1,2\n", "t.csv:3: arrival_s goes back"),
        ("arrival_s,input_tokens,output_tokens\n-1,1,2\n", "t.csv:2: arrival_s is negative: -1"),
        ("arrival_s,input_tokens,output_tokens\n0,-3,2\n", "t.csv:2: input_tokens is negative: -3"),
        ("arrival_s,input_tokens,output_tokens\n0,3,-2\n", "t.csv:2: output_tokens is negative: -2"),
        ("arrival_s,input_tokens,output_tokens\n0,,2\n", "t.csv:2: input_tokens is no whole number: ''"),
        ("arrival_s,input_tokens,output_tokens\n,1,2\n", "t.csv:2: arrival_s is no number of seconds: ''"),
        (
            "arrival_s,input_tokens,output_tokens\nNaN,1,2\n",
            "t.csv:2: arrival_s is no number of seconds: 'NaN'",
        ),
        ("arrival_s,input_tokens,output_tokens\ninf,1,2\n", "t.csv:2: arrival_s is no number"),
        ("arrival_s,input_tokens,output_tokens\n1e3,1,2\n", "t.csv:2: arrival_s is no number"),
        (
            "arrival_s,input_tokens,output_tokens\n0,NaN,2\n",
            "t.csv:2: input_tokens is no whole number: 'NaN'",
        ),
        (
            "arrival_s,input_tokens,output_tokens\n0,1.5,2\n",
            "t.csv:2: input_tokens is no whole number: '1.5'",
        ),
        (
            "arrival_s,input_tokens,output_tokens\n0,99999999999999999999,2\n",
            "t.csv:2: input_tokens is above",
        ),
        (
            "arrival_s,input_tokens,output_tokens\n99999999999999999999,1,2\n",
            "t.csv:2: arrival_s counts from",
        ),
        (
            "arrival_s,input_tokens,output_tokens,max_tokens\n0,1,2,x\n",
            "t.csv:2: max_tokens is no whole number",
        ),
    ] {
        let error = refused(text);
        assert!(error.starts_with(want), "{text:?}: {error}");
    }
    let error = read(b"arrival_s,input_tokens,output_tokens\n0,\xff,2\n").unwrap_err().to_string();
    assert_eq!(error, "t.csv:2: the line is not UTF-8");
}

#[test]
fn numbers_at_their_bounds() {
    let at = |arrival: &str, length: u64| read(format!("{HEAD}{arrival},{length},{length}\n").as_bytes());
    assert!(at(&ARRIVAL_MAX_S.to_string(), LLM_TOKENS_MAX).is_ok());
    assert!(at(&(ARRIVAL_MAX_S + 1).to_string(), 1).is_err());
    assert!(at("0", LLM_TOKENS_MAX + 1).is_err());
}

#[test]
fn keys_and_lines_at_their_bounds() {
    let head = "arrival_s,input_tokens,output_tokens,key\n";
    let with = |key: &str| read(format!("{head}0,1,2,{key}\n").as_bytes());
    assert!(with(&"k".repeat(KEY_BYTES_MAX)).is_ok());
    assert!(with(&"k".repeat(KEY_BYTES_MAX + 1)).unwrap_err().to_string().contains("the key is longer"));
    let padded = |bytes: usize| {
        let line = "0,1,2,k,";
        let text = format!(
            "arrival_s,input_tokens,output_tokens,key,x\n{line}{}\r\n",
            "x".repeat(bytes - line.len())
        );
        read(text.as_bytes())
    };
    assert!(padded(LINE_BYTES_MAX).is_ok());
    assert!(padded(LINE_BYTES_MAX + 1).unwrap_err().to_string().starts_with("t.csv:2: the line is longer"));
    let many = |count: usize| {
        let lines: Vec<String> = (0..count).map(|number| format!("0,1,2,{number}\n")).collect();
        read(format!("{head}{}", lines.concat()).as_bytes())
    };
    assert!(many(KEYS_MAX).is_ok());
    let error = many(KEYS_MAX + 1).unwrap_err().to_string();
    assert!(error.contains(&format!("t.csv:{}: more than", KEYS_MAX + 2)), "{error}");
}

#[test]
fn a_packed_trace_and_one_in_several_members() {
    let text = format!("{HEAD}0,1,2\n1,3,4\n");
    let plain = read(text.as_bytes()).unwrap();
    assert_eq!(read(&packed(&text)).unwrap(), plain);
    let (first, second) = text.split_at(HEAD.len() + 3);
    assert_eq!(read(&[packed(first), packed(second)].concat()).unwrap(), plain);
}

#[test]
fn a_packed_trace_that_is_cut_is_refused_wherever_it_is_cut() {
    let line = |number: u64| format!("{number},{},{}\n", number * 7 % 1_000, number * 13 % 97);
    let lines: Vec<String> = (0..400).map(line).collect();
    let whole = packed(&format!("{HEAD}{}", lines.concat()));
    for length in (2..whole.len()).step_by(7) {
        let error = read(&whole[..length]).unwrap_err();
        assert!(matches!(error, TraceError::Compressed { .. }), "{length}: {error}");
    }
    assert!(matches!(read(&[&whole[..], b"garbage"].concat()), Err(TraceError::Compressed { .. })));
    let middle = whole.len() / 2;
    let mut damaged = whole;
    damaged[middle] ^= 0x55;
    assert!(read(&damaged).is_err());
}

proptest! {
    /// Whatever a file has in it: a trace that keeps its promises, or an error that names a line.
    #[test]
    fn any_lines_are_read_whole_or_refused(
        lines in prop::collection::vec("[-0-9a.,\"N \r\u{feff}]{0,12}|[0-9]{1,3},[0-9]{1,3},[0-9]{1,3}", 0..12),
        packs in any::<bool>(),
    ) {
        let text = format!("{HEAD}{}", lines.join("\n"));
        let bytes = if packs { packed(&text) } else { text.into_bytes() };
        match read(&bytes) {
            Ok(trace) => {
                prop_assert!(!trace.rows.is_empty() && trace.rows.is_sorted_by_key(|row| row.arrival));
                prop_assert_eq!(read(trace.csv().as_bytes()).unwrap(), trace);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("t.csv:"), "{}", error),
        }
    }
}
