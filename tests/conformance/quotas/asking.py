"""What Throttles.java is asked: python asking.py | java -cp "JARS/*" Throttles.java > throttles.tsv, with Kafka's jars.

A line is one measurement: rate or bucket, windows, their length in ms, the limit, and what came, as pause:amount.
"""

import random


def main() -> None:
    """Print the measurements. They are the same at every run."""
    chance = random.Random(612)
    for number in range(60):
        kind = "bucket" if number % 4 == 3 else "rate"
        windows, size_ms = chance.choice([1, 2, 5, 11, 11]), chance.choice([100, 1000, 1000, 3000])
        limit = chance.choice([0.5, 1, 10, 1000, 12345.5])
        events = []
        for _ in range(20):
            all_ms = size_ms * windows
            pauses = [0, 0, 1, chance.randrange(size_ms), chance.randrange(size_ms * 3), size_ms, all_ms]
            pause_ms = chance.choice([*pauses, chance.randrange(all_ms * 2)])
            amount = limit * all_ms / 1000 * chance.choice([0, 0.02, 0.1, 0.3, 1.5]) * chance.random()
            events.append(f"{pause_ms}:{round(amount, 3)}")
        print(kind, windows, size_ms, limit, " ".join(events), sep="\t")


if __name__ == "__main__":
    main()
