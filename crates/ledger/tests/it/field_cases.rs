//! Field cases that a ledger alone can answer.

use crate::book_desk::over_book;

#[test]
fn b001_five_at_once_against_a_token_limit() {
    over_book(
        "
        leg tpm tokens 61x1 soft 100
        0  reserve 1 tpm=60 => admit 60
        0  reserve 2 tpm=60 => deny tpm busy
        0  reserve 3 tpm=60 => deny tpm busy
        0  reserve 4 tpm=60 => deny tpm busy
        0  reserve 5 tpm=60 => deny tpm busy
        1  settle 1 60      => held
        1  book tpm         => posted 60 held 0
        ",
    );
}

#[test]
fn b002_a_budget_is_held_at_the_worst_case() {
    over_book(
        "
        leg bud cost day hard 1000000 worst
        0  reserve 1 bud=1:900000 => admit 900000
        0  reserve 2 bud=1:900000 => deny bud busy 1 likely ceiling 1000000 room 100000
        1  settle 1 500000        => held
        1  reserve 3 bud=1:500001 => deny bud spent
        1  reserve 3 bud=1:500000 => admit 500000
        ",
    );
}

#[test]
fn b003_every_dimension_is_held() {
    over_book(
        "
        leg bud cost   day hard 1000000 worst
        leg tok tokens day hard 1000 worst
        0  reserve 1 bud=10 tok=400 => admit 10 400
        0  reserve 2 bud=10 tok=400 => admit 10 400
        0  reserve 3 bud=10 tok=400 => deny tok busy
        0  book bud                 => posted 0 held 20
        ",
    );
}

#[test]
fn b005_a_refusal_by_one_limit_consumes_no_other() {
    over_book(
        "
        leg rpm   requests 61x1 soft 2
        leg calls calls    held soft 1
        0  reserve 1 rpm calls => admit
        1  reserve 2 rpm calls => deny calls
        2  settle 1 1 0
        3  reserve 3 rpm calls => admit
        3  book rpm            => posted 2
        4  settle 3 1 0
        4  reserve 4 rpm calls => deny rpm
        ",
    );
}

#[test]
fn b006_a_denial_leaves_no_part_of_itself() {
    let mut scenario = "leg ten requests 61x60 soft 100\nleg prj requests 61x60 soft 10\n".to_owned();
    for id in 0..60 {
        let verdict = if id < 10 { "admit" } else { "deny prj" };
        scenario += &format!("{id} reserve {id} ten prj => {verdict}\n");
    }
    scenario += "60 book ten => posted 10\n";
    for id in 100..191 {
        let verdict = if id < 190 { "admit" } else { "deny ten" };
        scenario += &format!("61 reserve {id} ten => {verdict}\n");
    }
    over_book(&scenario);
}

#[test]
fn b007_raising_a_limit_helps_at_once() {
    let mut scenario = "leg rph requests 61x60 soft 10\n".to_owned();
    for id in 0..50 {
        scenario += &format!("0 reserve {id} rph => {}\n", if id < 10 { "admit" } else { "deny rph" });
    }
    scenario += "1 book rph => posted 10\n1 limit rph soft 20\n";
    for id in 100..111 {
        scenario += &format!("1 reserve {id} rph => {}\n", if id < 110 { "admit" } else { "deny rph" });
    }
    over_book(&(scenario + "1 book rph => posted 20\n"));
}

#[test]
fn b009_b031_only_what_was_used_is_charged_and_once() {
    over_book(
        "
        leg tph tokens hour hard 400
        0   reserve 1 tph=90  => admit
        1   settle 1 150      => held
        2   reserve 2 tph=90  => admit
        7   expire 2          => not due
        17  expire 2          => expired
        18  settle 2 150      => late over 60 posted tph 150
        18  settle 2 150      => ended corrected
        18  book tph          => posted 300 held 0
        18  reserve 3 tph=101 => deny tph spent
        ",
    );
}

#[test]
fn b010_larger_than_the_whole_limit_is_never() {
    over_book(
        "
        leg tpm tokens 61x1 soft 100
        0  reserve 1 tpm=16000 => deny tpm too_large ceiling 100 room 100
        0  book tpm            => none
        ",
    );
}

#[test]
fn b011_exactly_the_limit_passes() {
    let mut scenario = "leg rpm requests 61x1 soft 10\n".to_owned();
    for id in 1..=10 {
        scenario += &format!("0 reserve {id} rpm => admit\n0 book rpm => posted {id}\n");
    }
    over_book(&(scenario + "0 reserve 11 rpm => deny rpm busy 61 firm all ceiling 10 room 0\n"));
}

#[test]
fn b016_b024_ended_streams_leave_no_hold() {
    let mut scenario = "leg bud cost day hard 10000\n".to_owned();
    for id in 0..20 {
        scenario += &format!("{id} reserve {id} bud=4000 => admit\n{id} settle {id} 100 => held\n");
    }
    for id in 20..70 {
        scenario += &format!("30 reserve {id} bud=4000 => admit\n30 release {id} never => held\n");
    }
    over_book(&(scenario + "31 book bud => posted 2000 held 0\n"));
}

#[test]
fn b021_one_leaked_hold_dies_under_steady_traffic() {
    let mut scenario = "leg calls calls held soft 2\n0 reserve 999 calls => admit\n".to_owned();
    for second in 1..15 {
        scenario +=
            &format!("{second} reserve {second} calls => admit\n{second}.5 settle {second} 0 => held\n");
    }
    over_book(&(scenario + "15 expire 999 => expired\n15 book calls => posted 0 held 0\n"));
}

#[test]
fn b025_two_endings_race() {
    over_book(
        "
        leg bud cost day hard 1000
        0  reserve 1 bud=100 => admit
        1  settle 1 70       => held posted bud 70
        1  release 1 failed  => ended settled
        1  settle 1 100      => ended settled
        1  book bud          => posted 70 held 0
        ",
    );
}

#[test]
fn b030_a_reset_stays_and_pending_holds_settle_into_it() {
    over_book(
        "
        leg bud cost day hard 1000
        0  reserve 1 bud=700 => admit
        1  settle 1 700      => held
        1  reserve 2 bud=100 => admit
        2  adjust 1 bud 0 -700 => applied
        3  reserve 3 bud=10  => admit
        3  settle 3 10       => held
        3  book bud          => posted 10 held 100
        4  settle 2 60       => held
        4  book bud          => posted 70 held 0
        ",
    );
}

#[test]
fn b087_sums_are_exact() {
    let mut scenario = "leg bud cost day hard 1000000000\n".to_owned();
    for id in 0..10 {
        scenario +=
            &format!("{id} reserve {id} bud=100000000 => admit\n{id} settle {id} 100000000 => held\n");
    }
    over_book(
        &(scenario + "20 book bud => posted 1000000000 held 0\n20 reserve 99 bud=1 => deny bud spent\n"),
    );
}

#[test]
fn b088_the_smallest_amount_moves_the_account() {
    let mut scenario = "leg bud cost day hard 3000000000\n".to_owned();
    for id in 0..1_000 {
        scenario += &format!("1 reserve {id} bud=3000000 => admit\n1 settle {id} 3000000 => held\n");
    }
    scenario += "2 reserve 9999 bud=3000000 => deny bud spent\n";
    scenario += "2 limit bud hard 3000000001\n2 reserve 9999 bud=1 => admit 1\n2 settle 9999 1 => held\n";
    over_book(&(scenario + "2 book bud => posted 3000000001 held 0\n"));
}

#[test]
fn b094_deleting_an_overdrawn_key_lowers_nothing_else() {
    over_book(
        "
        leg key cost day hard 100
        leg prj cost day hard 1000
        leg new cost day hard 100
        0  reserve 1 key=100 prj=100 => admit
        1  settle 1 150 150          => held over 50 50
        2  reserve 2 new=100 prj=100 => admit         # a key made anew is another subject
        2  book prj                  => posted 150 held 100
        ",
    );
}

#[test]
fn b181_b182_windows_roll_over_by_themselves() {
    let mut scenario = "leg rpm requests minute hard 500\nleg tpm tokens minute hard 200\n".to_owned();
    scenario += "10 reserve 1 rpm tpm=150 => admit\n11 settle 1 1 150 => held\n";
    scenario += "61 reserve 2 rpm tpm=100 => admit\n61 book tpm => posted 0 held 100\n";
    scenario += "leg roll tokens 61x1 soft 600\n";
    for second in 100..400 {
        scenario +=
            &format!("{second} reserve {second} roll=5 => admit\n{second} settle {second} 5 => held\n");
    }
    over_book(&scenario);
}

#[test]
fn b183_a_daily_budget_does_not_refill() {
    let mut scenario = "leg bud cost day hard 1000000000\n".to_owned();
    for n in 0..10 {
        let time = n * 720;
        scenario +=
            &format!("{time} reserve {n} bud=100000000 => admit\n{time} settle {n} 100000000 => held\n");
    }
    over_book(&(scenario + "7200 reserve 99 bud=100000000 => deny bud spent 79200 firm\n"));
}

#[test]
fn b184_an_older_clock_wins_nothing() {
    let mut scenario = "leg rps requests 2x1 soft 150\n".to_owned();
    for id in 0..150 {
        let time = if id % 2 == 0 { "10.2" } else { "9.4" };
        scenario += &format!("{time} reserve {id} rps => admit\n");
    }
    scenario += "10.3 reserve 900 rps => deny rps\n9.5 reserve 900 rps => deny rps\n11.9 reserve 900 rps => deny rps\n";
    over_book(&(scenario + "12 reserve 900 rps => admit\n"));
}

#[test]
fn b185_the_clock_jumps_back_and_forth() {
    over_book(
        "
        leg rpm requests 61x1 soft 10
        leg day cost day hard 100
        43200 reserve 1 rpm day=30 => admit
        43200 reserve 2 rpm => admit
        43200 reserve 3 rpm => admit
        36000 reserve 4 rpm => admit
        36000 reserve 5 rpm => admit
        36000 reserve 6 rpm => admit
        36000 reserve 7 rpm => admit
        36000 reserve 8 rpm => admit
        36000 reserve 9 rpm => admit
        36000 reserve 10 rpm => admit
        36000 reserve 11 rpm => deny rpm busy 61 firm all ceiling 10 room 0
        36001 settle 1 1 30
        36001 period day 0        => posted 30 held 0
        122400 reserve 12 rpm day=80 => admit       # tomorrow
        36002 reserve 13 rpm day=30 => deny day busy    # not reset twice: tomorrow's period stays
        36002 settle 12 1 80
        122400 reserve 14 rpm day=30 => deny day spent
        122400 period day 86400   => posted 80 held 0     # not lost
        ",
    );
}

#[test]
fn b187_a_call_that_crosses_midnight() {
    over_book(
        "
        leg day cost day hard 1000
        -2  reserve 1 day=400   => admit
        1   reserve 2 day=1000  => admit
        5   settle 1 350        => held posted day 350
        5   period day -86400   => posted 350 held 0
        5   period day 0        => posted 0 held 1000
        ",
    );
}

#[test]
fn b252_what_is_free_passes_a_spent_budget() {
    over_book(
        "
        leg bud  cost     day  hard 100 worst
        leg life cost     life hard 100 worst
        leg tok  tokens   61x1 soft 100
        leg rpm  requests 61x1 soft 2
        0  reserve 1 bud=60:60 life=60:60 tok=60 => admit 60 60 60
        1  settle 1 250 250 250                  => held
        1  book bud                              => posted 250 held 0
        2  reserve 2 bud=0:0 life=0:0 tok=0      => admit 0 0 0
        2  book bud                              => posted 250 held 0
        # What may cost something has no room, though it asks for nothing yet.
        3  reserve 3 bud=0:1                     => deny bud spent
        3  reserve 3 tok=0:1                     => deny tok busy
        3  reserve 3 tok=0+0^9:0                 => deny tok busy
        # Free on one account is not free on another, and a request is never free.
        4  reserve 4 bud=0:0 rpm                 => admit 0 0
        4  reserve 5 bud=0:0 rpm                 => admit 0 0
        4  reserve 6 bud=0:0 rpm                 => deny rpm busy
        5  settle 2 0 0 0                        => held
        5  book bud                              => posted 250 held 0
        ",
    );
}
