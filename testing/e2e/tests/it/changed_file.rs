//! Limits are data (L16): the file is changed, the program started again on the same folder.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tollbook_e2e::config::{CHAT_MODEL, Config, MESSAGES_MODEL, secret};
use tollbook_e2e::gateway::{Gateway, wait_for};
use tollbook_e2e::http::LIMIT;
use tollbook_mock_upstream::{Generate, MockUpstream};

struct World {
    mock: MockUpstream,
    gateway: Gateway,
}

impl World {
    fn start(limits: &Value) -> Self {
        let mock = MockUpstream::start_in_thread(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        mock.set_default(
            Generate { input_llm_tokens: Some(30), output_llm_tokens: Some(7), ..Generate::default() }.into(),
        );
        let gateway = Gateway::start(&Config::new(&mock.url()).simple_tenant("acme", limits));
        Self { mock, gateway }
    }

    /// Another file, and another start; by a kill, because an orderly end must not be needed for it.
    fn change(&mut self, limits: &Value) {
        self.gateway.kill();
        self.gateway.configure(&Config::new(&self.mock.url()).simple_tenant("acme", limits));
        self.gateway.start_again();
    }

    fn call(&self, chat: bool) -> u16 {
        let (path, model) =
            if chat { ("/v1/chat/completions", CHAT_MODEL) } else { ("/v1/messages", MESSAGES_MODEL) };
        let body = json!({"model": model, "max_tokens": 16, "messages": [{"role": "user", "content": "hi"}]});
        self.gateway.post(path, &secret("acme-key"), &body).unwrap().status
    }

    /// So many calls, of which so many pass.
    fn calls(&self, count: usize) -> usize {
        (0..count).filter(|_| self.call(true) == 200).count()
    }

    fn line(&self, limit: &str) -> Value {
        let page = self.gateway.admin_get("/admin/v1/accounts").unwrap().json();
        let mut lines = page["data"].as_array().unwrap().iter();
        let line = lines.find(|line| line["limit"] == limit && line["shadow"] == false);
        line.cloned().unwrap_or_else(|| panic!("{limit} is not in {page}"))
    }

    fn posted(&self, limit: &str) -> i64 {
        self.line(limit)["posted"].as_i64().unwrap()
    }

    /// Waits until the account has come to this.
    fn comes_to(&self, limit: &str, posted: i64) {
        let reached = wait_for(LIMIT, || (self.posted(limit) == posted).then_some(()));
        assert!(reached.is_some(), "{limit} stands at {}, not at {posted}", self.posted(limit));
    }

    /// What the provider has used for all calls: input, output.
    fn used(&self) -> (i64, i64) {
        let calls = self.mock.calls_at_rest();
        let sum = |part: fn(&tollbook_mock_upstream::Usage) -> u64| {
            i64::try_from(calls.iter().map(|call| part(&call.generated)).sum::<u64>()).unwrap()
        };
        (sum(|usage| usage.input), sum(|usage| usage.output))
    }
}

#[test]
fn l16_changed_ceiling_meets_the_same_account() {
    let quota = |name: &str, ceiling: u64| json!([{"name": name, "measure": "requests", "period": "lifetime", "ceiling": ceiling}]);
    let mut world = World::start(&quota("first", 3));
    assert_eq!(world.calls(5), 3);
    // Higher: what is left is the difference. By another name it is no second budget.
    world.change(&quota("second", 5));
    assert_eq!(world.posted("second"), 3);
    assert_eq!(world.calls(5), 2);
    // Lower than what is posted: nothing passes, nothing is forgotten.
    world.change(&quota("second", 1));
    assert_eq!((world.posted("second"), world.calls(2)), (5, 0));
    // Removed and made again.
    world.change(&json!([]));
    assert_eq!(world.calls(1), 1);
    world.change(&quota("third", 7));
    world.comes_to("third", 6);
    assert_eq!(world.calls(3), 1);
}

/// A window that was changed to and fro leaves two ceilings behind, over one account.
#[test]
fn l16_the_tighter_of_two_old_ceilings_is_shown_and_enforced() {
    let rate = |window: &str, ceiling: u64| json!([{"name": "pace", "measure": "requests", "window": window, "ceiling": ceiling}]);
    let mut world = World::start(&rate("2h", 9));
    world.change(&rate("1h", 20));
    world.change(&rate("2h", 4));
    world.change(&rate("1h", 20));
    let page = world.gateway.get("/v1/limits", &secret("acme-key")).unwrap().json();
    let lines = page["data"].as_array().unwrap().iter();
    let mut told: Vec<_> = lines
        .map(|line| (line["form"].as_str().unwrap(), line["ceiling"].as_u64(), line["remaining"].as_u64()))
        .collect();
    told.sort_unstable();
    assert_eq!(told, [("rate 3600 s", Some(20), Some(20)), ("rate 7200 s", Some(4), Some(4))], "{page}");
    assert_eq!(world.calls(6), 4);
}

#[test]
fn l16_changed_window_starts_empty_and_the_old_one_is_enforced_beside_it() {
    let rate = |window: &str, ceiling: u64| json!([{"name": "pace", "measure": "requests", "window": window, "ceiling": ceiling}]);
    let mut world = World::start(&rate("2h", 4));
    assert_eq!(world.calls(3), 3);
    world.change(&rate("1h", 10));
    assert_eq!(world.posted("pace"), 0);
    // One is left in the old window, ten in the new one.
    assert_eq!((world.calls(4), world.posted("pace")), (1, 1));
    // Once the old window has passed, the new one binds alone: here it is a short one.
    let mut world = World::start(&rate("2s", 2));
    assert_eq!(world.calls(2), 2);
    world.change(&rate("1h", 3));
    let passed = || wait_for(LIMIT, || (world.call(true) == 200).then_some(()));
    assert!((0..3).all(|_| passed().is_some()));
    assert_eq!((world.calls(2), world.posted("pace")), (0, 3));
}

#[test]
fn l16_quota_added_in_mid_period_starts_from_the_journal_or_from_zero() {
    let requests = json!({"name": "all", "measure": "requests", "window": "1h", "ceiling": 1000});
    let mut world = World::start(&json!([requests]));
    assert_eq!(world.calls(3), 3);
    assert_eq!(world.call(false), 200);
    let quota = |name: &str, measure: &str, ceiling: &str| json!({"name": name, "measure": measure, "period": "month", "ceiling": ceiling});
    let mut zero = quota("from zero", "output_tokens", "1000000");
    zero["opening"] = json!("zero");
    let mut one_model = quota("one model", "tokens", "1000000");
    one_model["model"] = json!(MESSAGES_MODEL);
    let limits = json!([
        requests,
        quota("calls", "requests", "6"),
        quota("llm_tokens", "tokens", "1000000"),
        quota("input", "input_tokens", "1000000"),
        quota("money", "cost", "100"),
        zero,
        one_model
    ]);
    world.change(&limits);
    let (input, output) = world.used();
    assert_eq!((input, output), (4 * 30, 4 * 7));
    world.comes_to("calls", 4);
    world.comes_to("llm_tokens", input + output);
    world.comes_to("input", input);
    world.comes_to("money", input * 1000 + output * 4000);
    world.comes_to("one model", 37);
    assert_eq!(world.posted("from zero"), 0);
    // From there on it counts, once; another start opens nothing anew.
    assert_eq!(world.calls(1), 1);
    world.change(&limits);
    let (input, output) = world.used();
    world.comes_to("calls", 5);
    world.comes_to("llm_tokens", input + output);
    world.comes_to("money", input * 1000 + output * 4000);
    world.comes_to("from zero", 7);
    assert_eq!(world.calls(3), 1);
}

#[test]
fn l16_changed_zone_takes_effect_at_the_next_boundary_of_the_old_calendar() {
    // Kiritimati is 14 hours ahead: its day never ends when that of UTC does.
    let quota = |zone: &str| json!([{"name": "day", "measure": "requests", "period": "day", "zone": zone, "ceiling": 3}]);
    let mut world = World::start(&quota("UTC"));
    assert_eq!(world.calls(2), 2);
    // Not across midnight: the next day begins empty.
    let rest = || world.line("day")["reset_s"].as_u64().unwrap();
    if rest() < LIMIT.as_secs() {
        assert!(wait_for(2 * LIMIT, || (rest() == 0).then_some(())).is_some());
        assert_eq!(world.calls(2), 2);
    }
    let before = world.line("day")["reset_s"].as_u64().unwrap();
    world.change(&quota("Pacific/Kiritimati"));
    let after = world.line("day");
    assert_eq!(after["posted"], 2);
    let after = after["reset_s"].as_u64().unwrap();
    assert!(
        after <= before && before - after < LIMIT.as_secs(),
        "the day ended in {before} s, now in {after} s"
    );
    assert_eq!(world.calls(3), 1);
}
