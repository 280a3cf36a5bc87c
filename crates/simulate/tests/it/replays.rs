//! Replays over the real book: they repeat, and their figures are what the bookings are known for.

use tollbook_ledger::AMOUNT_MAX;
use tollbook_simulate::make::{Kind, make};
use tollbook_simulate::report::{Plot, Section, page};
use tollbook_simulate::table::Line;
use tollbook_simulate::{
    Call, Ceiling, Counted, Decision, Figures, Habits, Limits, Offer, Settings, Trace, judge, offer, replay,
};

const MINUTE: u64 = 60_000_000;

fn offered(kind: Kind, minutes: u64, seed: u64) -> Offer {
    offer(&make(kind, minutes * MINUTE, seed), &Habits { seed, ..Habits::default() })
}

fn decisions(offer: &Offer, text: &str, limits: &Limits) -> Vec<Decision> {
    let settings: Settings = text.parse().unwrap();
    replay(offer, &settings, limits, &mut |_| {}).unwrap().decisions
}

fn figures(offer: &Offer, text: &str, ceiling: Ceiling) -> Figures {
    let limits = Limits::of(offer, ceiling, false, Counted::Both).unwrap();
    judge(&decisions(offer, text, &limits), limits.ceilings(), Counted::Both).figures
}

#[test]
fn the_same_trace_and_seed_give_the_same_decisions() {
    let limits = |offer: &Offer| Limits::of(offer, Ceiling::Load(2_000), false, Counted::Both).unwrap();
    let run = |seed: u64| {
        let offer = offered(Kind::Conv, 5, seed);
        decisions(&offer, "booking=held,window=7x10s", &limits(&offer))
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
    // Part of the contract: the same on every machine.
    let csv = make(Kind::OnOff, 10 * MINUTE, 1).csv();
    let digest = csv.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!((csv.lines().count(), digest), (3_144, 7_982_101_124_799_391_238));
}

#[test]
fn every_call_is_decided_once_and_in_order() {
    let offer = offered(Kind::Code, 10, 1);
    let limits = Limits::of(&offer, Ceiling::Load(3_000), false, Counted::Both).unwrap();
    let decisions = decisions(&offer, "", &limits);
    assert_eq!(decisions.len(), offer.calls.len());
    for (number, (decision, call)) in decisions.iter().zip(&offer.calls).enumerate() {
        assert_eq!((decision.id, decision.arrival), (number as u64, call.arrival));
        assert_eq!((decision.start, decision.pace), (call.arrival + 300_000, call.pace));
        assert!((20_000..=40_000).contains(&decision.pace));
    }
}

#[test]
fn half_of_the_calls_send_a_cap_and_none_sends_one_it_exceeds() {
    let offer = offered(Kind::Reasoning, 60, 1);
    let short = offer.calls.iter().filter(|call| call.output <= 4_096);
    let (all, capped) = (short.clone().count(), short.filter(|call| call.max_tokens == Some(4_096)).count());
    assert!((45..=55).contains(&(capped * 100 / all)), "{capped} of {all}");
    assert!(offer.calls.iter().all(|call| call.max_tokens.is_none_or(|cap| cap >= call.output)));
}

#[test]
fn a_limit_without_load_refuses_nothing() {
    let offer = offered(Kind::Conv, 6, 1);
    let figures = figures(&offer, "", Ceiling::Limit(9_000_000_000));
    assert_eq!((figures.refused, figures.false_refused, figures.demanded), (0, 0, figures.admitted));
    assert_eq!(figures.utilisation, None);
}

#[test]
fn a_limit_below_every_input_refuses_everything_and_none_falsely() {
    let offer = offered(Kind::LongStreams, 6, 1);
    let figures = figures(&offer, "", Ceiling::Limit(1));
    assert_eq!((figures.refused, figures.false_refused, figures.admitted), (figures.calls, 0, 0));
    assert_eq!((figures.hold_to_actual, figures.over), (None, 0.0));
}

/// The papers' windows differ as they are known to.
#[test]
fn fine_buckets_use_more_of_a_limit_than_coarse_ones_and_neither_a_minute_keeps_it() {
    let offer = offered(Kind::Conv, 20, 2);
    let at = |text: &str| figures(&offer, text, Ceiling::Load(1_500));
    let (fine, coarse, minute) =
        (at("booking=held"), at("booking=held,window=7x10s"), at("booking=held,window=minute"));
    let util = |figures: &Figures| figures.utilisation.unwrap();
    assert!(util(&fine) > util(&coarse) + 0.05, "{fine:?} {coarse:?}");
    assert!(fine.over < 0.05 && coarse.over < 0.05);
    assert!(minute.over > 0.2 && minute.peak > 1.2, "{minute:?}");
    assert!(fine.false_refused < coarse.false_refused);
    // Posting after the fact holds nothing, and oversells.
    let none = at("booking=held,estimator=none");
    assert!(none.peak > 1.2 && none.hold_to_actual == Some(0.0), "{none:?}");
}

#[test]
fn one_limit_per_key_lets_no_key_starve() {
    let offer = offered(Kind::Conv, 20, 1);
    let limits = Limits::of(&offer, Ceiling::Load(1_500), true, Counted::Both).unwrap();
    assert_eq!(limits.ceilings().len(), 20);
    let decisions = decisions(&offer, "", &limits);
    for key in 0..20 {
        let mut of_key = decisions.iter().filter(|decision| decision.key == key);
        // On an idle account a call that fits is never refused.
        assert!(of_key.next().unwrap().admitted, "key {key}");
        assert!(of_key.any(|decision| decision.admitted), "key {key}");
    }
    let figures = judge(&decisions, limits.ceilings(), Counted::Both).figures;
    assert!(figures.utilisation.unwrap() > 0.4, "{figures:?}");
}

#[test]
fn input_or_output_alone_can_be_counted() {
    let offer = offered(Kind::Conv, 10, 1);
    for counted in [Counted::Input, Counted::Output] {
        for text in ["", "booking=held"] {
            let limits = Limits::of(&offer, Ceiling::Load(1_500), false, counted).unwrap();
            let settings = Settings { counted, ..text.parse().unwrap() };
            let decisions = replay(&offer, &settings, &limits, &mut |_| {}).unwrap().decisions;
            let figures = judge(&decisions, limits.ceilings(), counted).figures;
            let uses = |call: &Call| counted.of(call.input, call.output);
            assert_eq!(figures.demanded, offer.calls.iter().map(uses).sum::<u64>());
            let least = if text.is_empty() { 0.85 } else { 0.6 };
            assert!(
                figures.utilisation.unwrap() > least && figures.peak < 1.05,
                "{counted:?} {text}: {figures:?}"
            );
        }
    }
}

#[test]
fn a_load_needs_a_trace_that_lasts() {
    let trace = Trace::read("t", &b"arrival_s,input_tokens,output_tokens\n5,1,1\n5,1,1\n"[..]).unwrap();
    let offer = offer(&trace, &Habits::default());
    assert!(Limits::of(&offer, Ceiling::Load(1_500), false, Counted::Both).is_err());
    assert!(Limits::of(&offer, Ceiling::Limit(10), false, Counted::Both).is_ok());
}

#[test]
fn a_pace_of_zero_lands_at_once() {
    let trace = make(Kind::Conv, 5 * MINUTE, 1);
    let offer = offer(&trace, &Habits { pace: (0, 0), first: 0, ..Habits::default() });
    for text in ["booking=held", ""] {
        let figures = figures(&offer, text, Ceiling::Load(1_500));
        assert!(figures.over < 0.01 && figures.utilisation.unwrap() > 0.9, "{text}: {figures:?}");
    }
}

/// A long trace from its text to its figures: nothing is lost on the way.
#[test]
fn of_many_calls_each_llm_token_lands_once() {
    let made = make(Kind::Conv, 60 * MINUTE, 1);
    let trace = Trace::read(&made.name, made.csv().as_bytes()).unwrap();
    assert!(trace.csv() == made.csv());
    let offer = offer(&trace, &Habits::default());
    let limits = Limits::of(&offer, Ceiling::Load(1_500), false, Counted::Both).unwrap();
    let decisions = decisions(&offer, "", &limits);
    assert!(decisions.len() > 20_000 && decisions.len() == offer.calls.len());
    let judged = judge(&decisions, limits.ceilings(), Counted::Both);
    let used = |decision: &Decision| decision.input + decision.output;
    let admitted = decisions.iter().filter(|decision| decision.admitted).map(used).sum::<u64>();
    assert_eq!(judged.figures.admitted, admitted);
    assert_eq!(judged.figures.demanded, decisions.iter().map(used).sum::<u64>());
    // What lands at a look is in the 240 windows that end with it or after it, and all of them are in the series.
    let all = |looks: &[u64]| looks.iter().sum::<u64>();
    assert_eq!(all(&judged.series.landed), 240 * admitted);
    assert_eq!(all(&judged.series.demand), 240 * judged.figures.demanded);
}

/// The bookings side by side, within bounds that a change of arithmetic must not leave.
#[test]
fn forecast_uses_more_than_any_held_booking_and_oversells_less() {
    for (kind, minutes, load) in
        [(Kind::Conv, 10, 1_500), (Kind::LongStreams, 20, 3_000), (Kind::Reasoning, 15, 1_500)]
    {
        let offer = offered(kind, minutes, 1);
        let at = |text: &str| figures(&offer, text, Ceiling::Load(load));
        let (forecast, held, coarse) = (at(""), at("booking=held"), at("booking=held,window=7x10s"));
        let (strict, perfect) = (at("strict"), at("estimator=perfect"));
        let util = |figures: &Figures| figures.utilisation.unwrap();
        let name = kind.name();
        assert!(util(&forecast) > 0.92, "{name}: {forecast:?}");
        assert!(util(&forecast) > util(&held) + 0.05 && util(&held) > util(&coarse), "{name}: {held:?}");
        assert!(
            forecast.over < 0.01 && forecast.over_5 < 0.001 && forecast.peak < 1.06,
            "{name}: {forecast:?}"
        );
        assert!(strict.peak < 1.03 && strict.over_5 == 0.0, "{name}: {strict:?}");
        assert!(util(&forecast) > 0.97 * util(&perfect), "{name}: {perfect:?}");
        assert!(forecast.false_refused < coarse.false_refused, "{name}: {forecast:?} {coarse:?}");
    }
}

/// Gateways that each know their own streams only, and tell of them late, use and keep a shared limit as one does.
#[test]
fn gateways_that_share_a_book_use_its_limit_as_one_does() {
    for (kind, minutes, load) in [(Kind::Conv, 10, 1_500), (Kind::LongStreams, 20, 3_000)] {
        let offer = offered(kind, minutes, 1);
        let limits = Limits::of(&offer, Ceiling::Load(load), false, Counted::Both).unwrap();
        let decided = |text: &str| {
            let decisions = decisions(&offer, text, &limits);
            (judge(&decisions, limits.ceilings(), Counted::Both).figures, decisions)
        };
        let (one, alone) = decided("");
        for gateways in [4, 64] {
            let (many, decisions) = decided(&format!("gateways={gateways}"));
            let name = format!("{} {gateways}: {many:?} {one:?}", kind.name());
            assert_ne!(decisions, alone, "{name}: the gateways saw as much as one");
            assert!(many.utilisation.unwrap() > one.utilisation.unwrap() - 0.01, "{name}");
            assert!(many.over < 0.01 && many.over_5 < 0.001 && many.peak < 1.06, "{name}");
        }
        assert_eq!(decided("gateways=1").1, alone);
    }
}

#[test]
fn at_half_load_a_forecast_refuses_next_to_nothing() {
    let figures = figures(&offered(Kind::Conv, 20, 1), "", Ceiling::Load(500));
    assert_eq!((figures.refused, figures.false_refused), (0, 0), "{figures:?}");
}

/// The first call of each key, and calls that find their account idle: what fits alone is admitted.
#[test]
fn what_fits_on_an_idle_account_is_never_refused() {
    for kind in [Kind::Conv, Kind::Reasoning, Kind::LongStreams] {
        for own_keys in [true, false] {
            let mut offer = offered(kind, 5, 1);
            offer.calls.truncate(100);
            for (number, call) in (0_u32..).zip(&mut offer.calls) {
                call.arrival = u64::from(number) * 2_000_000_000;
                call.key = if own_keys { number } else { 0 };
            }
            offer.keys = vec![String::new(); if own_keys { offer.calls.len() } else { 1 }];
            // So high a load leaves each key the limit of its largest call.
            let limits = Limits::of(&offer, Ceiling::Load(100_000_000), true, Counted::Both).unwrap();
            for decision in decisions(&offer, "", &limits) {
                assert!(decision.admitted, "{} {own_keys}: {decision:?}", kind.name());
            }
        }
    }
}

#[test]
fn a_report_is_one_page_with_what_it_needs() {
    let offer = Offer { name: "<trace> & \"more\"".to_owned(), ..offered(Kind::Conv, 6, 1) };
    let limits = Limits::of(&offer, Ceiling::Load(1_500), true, Counted::Both).unwrap();
    let section = |text: &str| {
        let settings: Settings = text.parse().unwrap();
        let decisions = decisions(&offer, text, &limits);
        let judgement = judge(&decisions, limits.ceilings(), Counted::Both);
        let plot = Plot::of(&judgement, &decisions, Counted::Both, Some("key-1".to_owned()));
        let (trace, settings) = (offer.name.clone(), settings.to_string());
        Section { line: Line { trace, settings, limit: "x".to_owned(), figures: judgement.figures }, plot }
    };
    let page = page(&[section(""), section("booking=held")], 1);
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(page.contains("&lt;trace&gt; &amp; &quot;more&quot;") && !page.contains("<trace>"));
    for foreign in ["http:", "https:", "<script", "src=", "url(http", "@import", "NaN", "inf"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    // What is opened is closed.
    for tag in ["section", "svg", "figure", "table", "g", "title", "text", "div", "path"] {
        let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
        let closed = page.matches(&format!("</{tag}>")).count();
        let alone = if tag == "path" { page.matches("<path ").count() } else { 0 };
        assert_eq!(opened, closed + alone, "{tag}");
    }
}

#[test]
fn a_report_of_nothing_is_a_page_too() {
    let text = "arrival_s,input_tokens,output_tokens\n0,0,0\n";
    let offer = offer(&Trace::read("t", text.as_bytes()).unwrap(), &Habits::default());
    let limits = Limits::of(&offer, Ceiling::Limit(1), false, Counted::Both).unwrap();
    let decisions = decisions(&offer, "", &limits);
    let judgement = judge(&decisions, limits.ceilings(), Counted::Both);
    let plot = Plot::of(&judgement, &decisions, Counted::Both, None);
    let line = Line {
        trace: "t".to_owned(),
        settings: "s".to_owned(),
        limit: "1".to_owned(),
        figures: judgement.figures,
    };
    let page = page(&[Section { line, plot }], 1);
    assert!(page.contains("</html>") && !page.contains("NaN"));
}

/// A call whose lengths are the largest that a trace may have.
#[test]
fn the_largest_calls_are_replayed_and_judged() {
    let text = "arrival_s,input_tokens,output_tokens\n0,4000000,4000000\n130,4000000,4000000\n200,0,0\n";
    let trace = Trace::read("t", text.as_bytes()).unwrap();
    let offer = offer(&trace, &Habits::default());
    let figures = figures(&offer, "booking=held,factor=100", Ceiling::Limit(AMOUNT_MAX));
    assert_eq!((figures.calls, figures.refused, figures.demanded), (3, 0, 16_000_000));
}
