//! The exporter against a collector that decodes with the published definitions, and misbehaves.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that meets something unexpected fails there"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{HeaderName, HeaderValue};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollbook_mock_collector::{MockCollector, Mood, SpanKind, attribute};
use tollbook_otlp::{BATCH_MAX, Exporter, Resource, Settings};
use tollbook_telemetry::Metrics;
use tollbook_telemetry::labels::SpanLoss;
use tollbook_telemetry::trace::{ATTEMPTS_MAX, Context, Key, ONE, TEXT_MAX, Tracer, TracerSettings, Value};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const QUEUE: usize = 64;

struct World {
    tracer: Arc<Tracer>,
    metrics: Arc<Metrics>,
    stop: watch::Sender<bool>,
    exporting: JoinHandle<()>,
}

impl World {
    fn start(url: &str, change: impl FnOnce(&mut Settings)) -> Self {
        let metrics = Arc::new(Metrics::new());
        let tracer = tracer(&metrics, QUEUE);
        let mut settings = Settings {
            endpoint: url.parse().unwrap(),
            headers: vec![(HeaderName::from_static("x-collector"), HeaderValue::from_static("sesame"))],
            timeout: Duration::from_secs(5),
            every: Duration::from_millis(10),
            flush: Duration::from_secs(5),
            resource: Resource { service: "tb".into(), instance: "i-1".into(), version: "9" },
        };
        change(&mut settings);
        let stop = watch::Sender::new(false);
        let exporter = Exporter::new(settings, Arc::clone(&tracer)).unwrap();
        let exporting = tokio::spawn(exporter.run(stop.subscribe()));
        Self { tracer, metrics, stop, exporting }
    }

    fn lost(&self, why: SpanLoss) -> u64 {
        self.metrics.traces_dropped.get((why,))
    }

    fn sent(&self) -> u64 {
        self.metrics.traces_sent.get(())
    }

    async fn until(&self, what: &str, reached: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !reached(self) {
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn stop(self) -> Arc<Metrics> {
        self.stop.send_replace(true);
        self.exporting.await.unwrap();
        self.metrics
    }
}

fn tracer(metrics: &Arc<Metrics>, queue_max: usize) -> Arc<Tracer> {
    let settings = TracerSettings { ratio: ONE, follow_client: false, queue_max, batch: BATCH_MAX };
    Tracer::new(settings, Arc::clone(metrics), 7)
}

/// A finished call of one span.
fn call(tracer: &Arc<Tracer>) {
    drop(tracer.call(None).unwrap());
}

#[tokio::test]
async fn what_was_traced_is_what_arrives() {
    let collector = MockCollector::start().await.unwrap();
    let world = World::start(&collector.url(), |_| ());
    let parent = Context::read(PARENT, Some("vendor=1")).unwrap();
    let call = world.tracer.call(Some(parent)).unwrap();
    call.name("chat m");
    call.put(Key::Operation, "chat");
    call.put(Key::RequestModel, Value::text("m"));
    call.put(Key::HoldLlmTokens, u64::MAX);
    call.put(Key::RequestStream, true);
    call.put(Key::FinishReasons, Value::Words(vec!["stop", "length"]));
    let told = call.attempt("chat u");
    call.put_attempt(Key::HttpStatus, 503);
    call.fail_attempt("503");
    call.attempt("chat u");
    call.fail("upstream_error");
    drop(call);

    let spans = collector.until_spans(3).await.unwrap();
    assert_eq!(collector.mistakes(), Vec::<String>::new());
    let received = &collector.received()[0];
    assert_eq!((received.path.as_str(), received.service.as_deref()), ("/v1/traces", Some("tb")));
    assert_eq!(received.headers["x-collector"], "sesame");
    assert_eq!(received.headers["content-type"], "application/x-protobuf");
    let [door, first, second] = &spans[..] else { panic!("{spans:?}") };
    assert_eq!((door.name.as_str(), door.kind()), ("chat m", SpanKind::Server));
    assert_eq!((first.name.as_str(), first.kind()), ("chat u", SpanKind::Client));
    for span in &spans {
        assert_eq!(span.trace_id, hex("4bf92f3577b34da6a3ce929d0e0e4736"));
        assert_eq!(span.trace_state, "vendor=1");
        assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    assert_eq!(door.parent_span_id, hex("00f067aa0ba902b7"));
    assert_eq!((door.flags, first.flags), (0x301, 0x101));
    assert_eq!((&first.parent_span_id, &second.parent_span_id), (&door.span_id, &door.span_id));
    assert_eq!(first.span_id, told.span.0);
    assert_ne!(first.span_id, second.span_id);
    assert_eq!(attribute(door, "gen_ai.operation.name").as_deref(), Some("chat"));
    assert_eq!(attribute(door, "gen_ai.request.model").as_deref(), Some("m"));
    assert_eq!(attribute(door, "gen_ai.request.stream").as_deref(), Some("true"));
    assert_eq!(attribute(door, "gen_ai.response.finish_reasons").as_deref(), Some("stop,length"));
    assert_eq!(attribute(door, "tollbook.hold.llm_tokens"), Some(i64::MAX.to_string()));
    assert_eq!(attribute(door, "error.type").as_deref(), Some("upstream_error"));
    assert_eq!(door.status.as_ref().unwrap().code, 2);
    assert_eq!(attribute(first, "http.response.status_code").as_deref(), Some("503"));
    assert_eq!(attribute(first, "http.request.resend_count"), None);
    assert_eq!(attribute(second, "http.request.resend_count").as_deref(), Some("1"));
    assert_eq!((first.status.as_ref().unwrap().code, &second.status), (2, &None));
    world.until("all is counted", |world| world.sent() == 3).await;
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(text.get(i * 2..i * 2 + 2).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn texts_and_tries_stop_at_their_bounds() {
    let metrics = Arc::new(Metrics::new());
    let tracer = tracer(&metrics, QUEUE);
    let call = tracer.call(None).unwrap();
    call.put(Key::RequestModel, Value::text(&"é".repeat(TEXT_MAX)));
    call.put(Key::Tenant, &Arc::<str>::from("x".repeat(TEXT_MAX + 1)));
    call.name(&"n".repeat(10_000));
    for _ in 0..ATTEMPTS_MAX + 5 {
        call.attempt("a");
    }
    drop(call);
    let spans = tracer.take(usize::MAX);
    assert_eq!(spans.len(), ATTEMPTS_MAX + 1);
    assert_eq!(spans[0].name.len(), TEXT_MAX);
    for (_, value) in &spans[0].attributes {
        let Value::Text(text) = value else { panic!("{value:?}") };
        assert_eq!(text.len(), TEXT_MAX);
    }
}

#[test]
fn the_queue_is_full_at_its_bound_and_what_is_new_is_counted_and_dropped() {
    let metrics = Arc::new(Metrics::new());
    let tracer = tracer(&metrics, QUEUE);
    for _ in 0..QUEUE {
        call(&tracer);
    }
    assert_eq!((tracer.waiting(), metrics.traces_dropped.get((SpanLoss::QueueFull,))), (QUEUE, 0));
    call(&tracer);
    assert_eq!((tracer.waiting(), metrics.traces_dropped.get((SpanLoss::QueueFull,))), (QUEUE, 1));
    assert_eq!(tracer.take(1).len(), 1);
    // A call's spans are kept together: two do not fit where there is room for one.
    let two = tracer.call(None).unwrap();
    two.attempt("a");
    drop(two);
    assert_eq!((tracer.waiting(), metrics.traces_dropped.get((SpanLoss::QueueFull,))), (QUEUE - 1, 3));
    call(&tracer);
    assert_eq!(tracer.waiting(), QUEUE);
}

#[test]
fn sampling_follows_the_ratio_or_the_client() {
    let metrics = Arc::new(Metrics::new());
    let make = |ratio, follow_client| {
        let settings = TracerSettings { ratio, follow_client, queue_max: QUEUE, batch: BATCH_MAX };
        Tracer::new(settings, Arc::clone(&metrics), 99)
    };
    let sampled = || Context::read(PARENT, None);
    let unsampled = || Context::read(&PARENT.replace("-01", "-00"), None);
    assert!(make(0, false).call(sampled()).is_none());
    assert!(make(0, false).call(None).is_none());
    assert!(make(ONE, false).call(unsampled()).is_some());
    assert!(make(0, true).call(sampled()).is_some());
    assert!(make(ONE, true).call(unsampled()).is_none());
    assert!(make(ONE, true).call(None).is_some());
    let half = make(ONE / 2, false);
    let taken = (0..10_000).filter(|_| half.call(None).is_some()).count();
    assert!((4_700..5_300).contains(&taken), "{taken}");
}

#[tokio::test]
async fn a_collector_that_is_down_costs_calls_nothing_and_every_span_is_accounted_for() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let world = World::start(&url, |settings| settings.flush = Duration::from_millis(200));
    let began = Instant::now();
    for _ in 0..1000 {
        call(&world.tracer);
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(world.lost(SpanLoss::QueueFull) > 0);
    let stopping = Instant::now();
    let metrics = world.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(3), "{:?}", stopping.elapsed());
    let losses = [SpanLoss::QueueFull, SpanLoss::Away, SpanLoss::Shutdown];
    let lost: u64 = losses.into_iter().map(|why| metrics.traces_dropped.get((why,))).sum();
    assert_eq!((lost, metrics.traces_sent.get(())), (1000, 0));
}

#[tokio::test]
async fn a_silent_collector_does_not_hold_up_a_stop() {
    let collector = MockCollector::start().await.unwrap();
    collector.mood(Mood::Silent);
    let world = World::start(&collector.url(), |settings| {
        settings.timeout = Duration::from_secs(60);
        settings.flush = Duration::from_millis(50);
    });
    call(&world.tracer);
    collector.until_requests(1).await.unwrap();
    call(&world.tracer);
    let stopping = Instant::now();
    let metrics = world.stop().await;
    assert!(stopping.elapsed() < Duration::from_secs(10), "{:?}", stopping.elapsed());
    assert_eq!(metrics.traces_dropped.get((SpanLoss::Shutdown,)), 2);
}

#[tokio::test]
async fn a_stop_sends_what_waits() {
    let collector = MockCollector::start().await.unwrap();
    let world = World::start(&collector.url(), |settings| settings.every = Duration::from_secs(3600));
    // The first tick is at once.
    call(&world.tracer);
    world.until("the first has gone", |world| world.tracer.waiting() == 0).await;
    for _ in 0..5 {
        call(&world.tracer);
    }
    let metrics = world.stop().await;
    assert_eq!(collector.spans().len(), 6);
    assert_eq!(metrics.traces_sent.get(()), 6);
}

#[tokio::test]
async fn a_passing_trouble_is_tried_again() {
    let collector = MockCollector::start().await.unwrap();
    collector.next(Mood::Status(503, Some(0)));
    collector.next(Mood::Status(429, Some(0)));
    let world = World::start(&collector.url(), |_| ());
    call(&world.tracer);
    world.until("it is taken", |world| world.sent() == 1).await;
    assert_eq!(world.lost(SpanLoss::Away), 0);
    let received = collector.received();
    assert_eq!(received.len(), 3);
    assert!(received.iter().all(|each| each.spans == received[0].spans), "one batch, again and again");
}

#[tokio::test]
async fn a_lasting_trouble_is_not() {
    let collector = MockCollector::start().await.unwrap();
    collector.mood(Mood::Status(401, Some(0)));
    let world = World::start(&collector.url(), |_| ());
    call(&world.tracer);
    world.until("it is refused", |world| world.lost(SpanLoss::Refused) == 1).await;
    assert_eq!(collector.received().len(), 1);
    collector.mood(Mood::Partial(1));
    let two = world.tracer.call(None).unwrap();
    two.attempt("a");
    drop(two);
    world.until("half of it is taken", |world| world.sent() == 1).await;
    assert_eq!(world.lost(SpanLoss::Refused), 2);
    // More than there were, and fewer than none.
    for refused in [i64::MAX, -1] {
        collector.mood(Mood::Partial(refused));
        let before = world.lost(SpanLoss::Refused);
        call(&world.tracer);
        world.until("it is refused", |world| world.lost(SpanLoss::Refused) == before + 1).await;
    }
}

#[tokio::test]
async fn a_batch_is_no_larger_than_its_bound() {
    let collector = MockCollector::start().await.unwrap();
    let metrics = Arc::new(Metrics::new());
    let tracer = tracer(&metrics, BATCH_MAX * 3);
    for _ in 0..=BATCH_MAX * 2 {
        call(&tracer);
    }
    let settings = Settings {
        endpoint: collector.url().parse().unwrap(),
        headers: Vec::new(),
        timeout: Duration::from_secs(5),
        every: Duration::from_millis(10),
        flush: Duration::from_secs(5),
        resource: Resource { service: "tb".into(), instance: "i".into(), version: "9" },
    };
    let stop = watch::Sender::new(false);
    let exporting = tokio::spawn(Exporter::new(settings, tracer).unwrap().run(stop.subscribe()));
    collector.until_spans(BATCH_MAX * 2 + 1).await.unwrap();
    let sizes: Vec<usize> = collector.received().iter().map(|each| each.spans.len()).collect();
    assert_eq!(sizes, [BATCH_MAX, BATCH_MAX, 1]);
    stop.send_replace(true);
    exporting.await.unwrap();
}
