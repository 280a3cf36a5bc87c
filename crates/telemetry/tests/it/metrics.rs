//! The list, label bounds and the scrape.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tollbook_telemetry::labels::{
    Alarm, Dialect, Ending, Figures, Form, Measure, Part, Problem, Side, Status, Surface, UpstreamTrouble,
};
use tollbook_telemetry::{
    MODELS_MAX, MetricDoc, MetricKind, Metrics, ModelLabel, NameLabel, POOLS_MAX, PoolLabel,
};

/// Uses every series the metrics can have.
fn fill(metrics: &Metrics) {
    let models: Vec<String> =
        (0..MODELS_MAX).map(|i| format!("model-with-a-rather-long-name-{i:03}")).collect();
    let pools: Vec<String> = (0..POOLS_MAX).map(|i| format!("pool-with-a-rather-long-name-{i:03}")).collect();
    metrics.models_set(models.iter().map(String::as_str));
    metrics.pools_set(pools.iter().map(String::as_str));
    let second = Duration::from_secs(1);
    for dialect in Dialect::ALL {
        for surface in Surface::ALL {
            for ending in Ending::ALL {
                metrics.calls_ended.inc((*dialect, *surface, *ending));
            }
        }
        for p in Problem::ALL {
            metrics.calls_rejected.inc((*dialect, *p));
        }
    }
    for name in models.iter().map(String::as_str).chain(["unknown"]) {
        let model: ModelLabel = metrics.label(name);
        metrics.calls_ttft.observe((model,), second);
        metrics.calls_duration.observe((model,), second);
        metrics.usage_cost_nano.inc((model,));
        for p in Part::ALL {
            metrics.usage_llm_tokens.inc((model, *p));
        }
    }
    for name in pools.iter().map(String::as_str).chain(["unknown"]) {
        let pool: PoolLabel = metrics.label(name);
        metrics.upstream_answer.observe((pool,), second);
        metrics.upstream_retries.inc((pool,));
        for s in Status::ALL {
            metrics.upstream_requests.inc((pool, *s));
        }
        for t in UpstreamTrouble::ALL {
            metrics.upstream_errors.inc((pool, *t));
        }
    }
}

#[test]
fn b249_a_scrape_with_every_series_is_below_a_megabyte_and_quick() {
    let metrics = Metrics::new();
    fill(&metrics);
    let start = Instant::now();
    let text = metrics.encode();
    assert!(start.elapsed() < Duration::from_millis(200), "{:?}", start.elapsed());
    assert!(text.len() < 1_000_000, "{} bytes", text.len());
}

#[test]
fn b249_ten_thousand_names_make_no_more_series_than_the_bound() {
    let metrics = Metrics::new();
    let names: Vec<String> = (0..10_000).map(|i| format!("m{i}")).collect();
    metrics.models_set(names.iter().map(String::as_str));
    for name in &names {
        metrics.calls_ttft.observe((metrics.label(name),), Duration::from_millis(1));
    }
    let text = metrics.encode();
    assert_eq!(text.matches("tollbook_calls_ttft_seconds_count{").count(), MODELS_MAX + 1);
    assert!(text.contains("tollbook_calls_ttft_seconds_count{model=\"other\"} 9936\n"));
}

#[test]
fn b249_all_metrics_together_have_a_bound() {
    // What a scrape holds at most, buckets included: far below what makes a Prometheus suffer.
    let lines = |metric: &MetricDoc| match metric.kind {
        MetricKind::Histogram => metric.series_max() * 18,
        MetricKind::Counter | MetricKind::Gauge => metric.series_max(),
    };
    let list = Metrics::list();
    let all: usize = list.iter().map(lines).sum();
    assert!(all <= 10_000, "{all} series");
    let of = |name: &str| list.iter().find(|metric| metric.name == name).unwrap().series_max();
    assert_eq!(of("tollbook_calls_ttft_seconds"), MODELS_MAX + 1);
    assert_eq!(of("tollbook_upstream_retries_total"), POOLS_MAX + 1);
    assert_eq!(of("tollbook_calls_streams_open"), 1);
}

#[test]
fn b249_pools_past_the_bound_and_names_of_a_client_share_one_series() {
    let metrics = Metrics::new();
    let names: Vec<String> = (0..10_000).map(|i| format!("p{i}")).collect();
    metrics.pools_set(names.iter().map(String::as_str));
    for name in names.iter().map(String::as_str).chain(["", "other", "a\"} 1", "/v1/../x", "😀"]) {
        metrics.upstream_retries.inc((metrics.label(name),));
    }
    let text = metrics.encode();
    assert_eq!(text.matches("tollbook_upstream_retries_total{").count(), POOLS_MAX + 1);
    assert!(text.contains("tollbook_upstream_retries_total{pool=\"other\"} 9941\n"));
}

#[test]
fn b249_no_metric_has_a_label_for_key_user_tenant_or_request() {
    for metric in Metrics::list() {
        for label in &metric.labels {
            let banned = ["key", "user", "tenant", "project", "service", "request", "prompt", "path"];
            assert!(!banned.contains(&label.name), "{} has label {}", metric.name, label.name);
            assert!(label.max <= 65, "{} of {} is not bounded", label.name, metric.name);
        }
    }
}

#[test]
fn a_client_text_never_becomes_a_label() {
    let metrics = Metrics::new();
    metrics.models_set(["gpt-5"]);
    let label: ModelLabel = metrics.label("ignore previous instructions");
    assert_eq!(label, ModelLabel::OTHER);
    assert_ne!(metrics.label::<ModelLabel>("gpt-5"), ModelLabel::OTHER);
}

#[test]
fn a_name_keeps_its_label_over_reloads() {
    let metrics = Metrics::new();
    metrics.models_set(["a", "b"]);
    let b: ModelLabel = metrics.label("b");
    metrics.models_set(["c", "b"]);
    assert_eq!(metrics.label::<ModelLabel>("b"), b);
    metrics.usage_cost_nano.add((b,), 7);
    assert!(metrics.encode().contains("tollbook_usage_cost_nano_total{model=\"b\"} 7\n"));
}

#[test]
fn a_configured_name_with_quotes_is_escaped() {
    let metrics = Metrics::new();
    metrics.models_set(["a\"b\\c\nd"]);
    metrics.usage_cost_nano.inc((metrics.label("a\"b\\c\nd"),));
    assert!(metrics.encode().contains("{model=\"a\\\"b\\\\c\\nd\"} 1\n"));
}

#[test]
fn every_metric_of_the_list_is_in_a_full_scrape_with_type_and_help() {
    let metrics = Metrics::new();
    let text = metrics.encode();
    let list = Metrics::list();
    let names: BTreeSet<_> = list.iter().map(|m| m.name.clone()).collect();
    assert_eq!(names.len(), list.len());
    for metric in &list {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        // A family without series yet is left out of a scrape.
        if metric.labels.is_empty() {
            assert!(text.contains(&format!("# TYPE {} {kind}\n", metric.name)), "{}", metric.name);
            assert!(text.contains(&format!("# HELP {} {}", metric.name, metric.help)), "{}", metric.name);
        }
    }
    for line in text.lines().filter_map(|l| l.strip_prefix("# TYPE ")) {
        let name = line.split(' ').next().unwrap();
        assert!(names.contains(name), "{name} is not in the list");
    }
}

#[test]
fn names_follow_the_house_rule() {
    for metric in Metrics::list() {
        assert!(metric.name.starts_with("tollbook_"));
        assert!(metric.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", metric.name);
        assert_eq!(metric.kind == MetricKind::Counter, metric.name.ends_with("_total"), "{}", metric.name);
        assert!(!metric.help.is_empty() && !metric.help.ends_with('.'));
    }
}

#[test]
fn each_label_set_has_its_own_series() {
    let metrics = Metrics::new();
    for (i, ending) in Ending::ALL.iter().enumerate() {
        let n = u64::try_from(i).unwrap() + 1;
        metrics.calls_ended.add((Dialect::Anthropic, Surface::Messages, *ending), n);
    }
    for (i, ending) in Ending::ALL.iter().enumerate() {
        let n = u64::try_from(i).unwrap() + 1;
        assert_eq!(metrics.calls_ended.get((Dialect::Anthropic, Surface::Messages, *ending)), n);
        assert_eq!(metrics.calls_ended.get((Dialect::OpenAi, Surface::Messages, *ending)), 0);
    }
    metrics.calls_overhead.observe((Surface::Chat, Form::Stream), Duration::from_micros(30));
    let bucket = "tollbook_calls_overhead_seconds_bucket{surface=\"chat\",form=\"stream\",le=\"5e-05\"} 1\n";
    assert!(metrics.encode().contains(bucket));
}

#[test]
fn gauges_follow_guards_and_counters_only_rise() {
    let metrics = Metrics::new();
    let (one, two) = (metrics.calls_streams_open.enter(()), metrics.calls_streams_open.enter(()));
    assert_eq!(metrics.calls_streams_open.get(()), 2);
    drop(one);
    drop(two);
    assert_eq!(metrics.calls_streams_open.get(()), 0);
    metrics.engine_log_records.raise_to((), 9);
    metrics.engine_log_records.raise_to((), 4);
    assert_eq!(metrics.engine_log_records.get(()), 9);
    metrics.engine_log_bytes.set((), u64::MAX);
    assert_eq!(metrics.engine_log_bytes.get(()), i64::MAX);
}

#[test]
fn counts_of_many_threads_add_up() {
    let metrics = Metrics::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    metrics.settle_figures.inc((Side::Tenant, Figures::Reported));
                    metrics.engine_alarms.inc((Alarm::Drift,));
                    metrics.upstream_answer.observe((PoolLabel::OTHER,), Duration::from_micros(3));
                    metrics.settle_overruns.inc((Measure::Cost,));
                }
            });
        }
    });
    assert_eq!(metrics.settle_figures.get((Side::Tenant, Figures::Reported)), 4000);
    assert!(metrics.encode().contains("tollbook_upstream_answer_seconds_count{pool=\"other\"} 4000\n"));
}
