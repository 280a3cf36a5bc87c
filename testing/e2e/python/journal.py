"""Prints the journal of a stopped gateway as JSON: its entries with what each posted to quotas, in the order written,
and the sums it keeps of what was posted.

usage: journal.py FILE

It knows the stored form and nothing else of the program, so that a test can judge by it.
"""

import json
import sqlite3
import sys

ORIGINS = ["settled", "released", "expired", "rebooked", "late", "adjusted", "unbooked"]
SIDES = ["tenant", "pool", "unreadable"]
FIGURES = ["reported", "metered", "partial", "unknown", "expired", "adjusted", "nothing"]
ENDINGS = [
    "complete",
    "never_sent",
    "upstream_error",
    "reset",
    "truncated",
    "client_gone",
    "timeout",
    "stopped_at_limit",
    "shutdown",
    "expired",
    "adjusted",
]
WORDS = {"origin": ORIGINS, "side": SIDES, "figures": FIGURES, "ending": ENDINGS}


def account(subject, name, period):
    return f"{subject}:{name}:{period}"


def readable(row):
    entry = dict(row)
    entry.update({name: words[entry[name]] for name, words in WORDS.items()})
    entry["posted"] = [
        {"account": account(*place), "amount": amount} for *place, amount in json.loads(entry["posted"])
    ]
    return entry


def main():
    database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    database.row_factory = sqlite3.Row
    entries = [readable(row) for row in database.execute("SELECT * FROM journal ORDER BY place")]
    sums = {account(*place): amount for *place, amount in database.execute("SELECT subject, account, period, amount FROM posted")}
    json.dump({"entries": entries, "sums": sums}, sys.stdout)


if __name__ == "__main__":
    main()
