//! Logs: formats, filters, colours, floods.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tollbook_telemetry::log::{Every, LogError, LogFormat, LogSettings, subscriber};

/// Keeps what was written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn lines(format: LogFormat, terminal: bool, coloured: bool) -> String {
    let kept = Kept::default();
    let writer = kept.clone();
    let settings = LogSettings { format, filter: "info".to_owned() };
    let logs = subscriber(&settings, terminal, coloured, move || writer.clone()).unwrap();
    tracing::subscriber::with_default(logs, || {
        let call = tracing::info_span!("call", request = "req_1");
        let _entered = call.enter();
        tracing::info!(status = 200, "ended");
        tracing::debug!("not shown");
    });
    let bytes = kept.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn json_lines_carry_the_span_and_the_fields() {
    let text = lines(LogFormat::Json, true, false);
    assert_eq!(text.lines().count(), 1);
    assert!(text.starts_with('{') && text.ends_with("}\n"));
    for part in [r#""level":"INFO""#, r#""message":"ended""#, r#""status":200"#, r#""request":"req_1""#] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn auto_is_text_on_a_terminal_and_json_elsewhere() {
    assert!(!lines(LogFormat::Auto, true, false).starts_with('{'));
    assert!(lines(LogFormat::Auto, false, false).starts_with('{'));
}

#[test]
fn colours_only_where_asked_for() {
    assert!(!lines(LogFormat::Text, true, false).contains('\u{1b}'));
    assert!(lines(LogFormat::Text, true, true).contains('\u{1b}'));
}

#[test]
fn a_bad_filter_is_an_error() {
    let settings = LogSettings { format: LogFormat::Text, filter: "info,=,=".to_owned() };
    let result = subscriber(&settings, false, false, std::io::sink);
    assert!(matches!(result.err(), Some(LogError::Filter(_))));
}

#[test]
fn b198_an_outage_logs_once_per_interval_and_counts_the_rest() {
    let every = Every::new(Duration::from_secs(10));
    let start = Instant::now();
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(every.pass(at(0)), Some(0));
    assert_eq!(every.pass(at(1)), None);
    assert_eq!(every.pass(at(9)), None);
    assert_eq!(every.pass(at(10)), Some(2));
    assert_eq!(every.pass(at(19)), None);
}
