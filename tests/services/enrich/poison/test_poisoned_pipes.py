"""A revision with three poison records is quarantined, also if the search for each of them ended the process."""

from hifi_enrich.poison.poisoned_pipes import MAX_POISON_RECORDS, PoisonedPipes


def test_a_pipe_is_quarantined_after_three_and_released_by_a_new_revision() -> None:
    pipes = PoisonedPipes()
    for count in range(1, MAX_POISON_RECORDS + 1):
        assert not pipes.is_quarantined("orders", 12)
        assert pipes.add("orders", 12) == count
    assert pipes.is_quarantined("orders", 12)
    assert not pipes.is_quarantined("orders", 13)
    assert not pipes.is_quarantined("crm", 12)
    assert pipes.add("orders", 13) == 1
    assert not pipes.is_quarantined("orders", 13)


def test_the_next_revision_of_a_pipe_counts_for_itself_alone() -> None:
    pipes = PoisonedPipes()
    for _ in range(MAX_POISON_RECORDS):
        pipes.add("orders", 25)
        assert pipes.add("orders", 10) <= MAX_POISON_RECORDS
    assert pipes.is_quarantined("orders", 25)
    assert pipes.is_quarantined("orders", 10)
    assert not pipes.is_quarantined("orders", 11)


def test_the_counts_pass_to_the_next_process_with_the_notes() -> None:
    old_pipes, new_pipes = PoisonedPipes(), PoisonedPipes()
    revisions = (("orders", 12), ("orders", 12), ("crm-eu", 4), ("orders", 25), ("orders", 12))
    for pipe, offset in revisions:
        old_pipes.add(pipe, offset)
    new_pipes.read(
        ["", "crashes:2", f"trial:9{old_pipes.note()}", ";poisoned:orders@12=1", ";poisoned:x@y=z,,@="]
    )
    assert new_pipes.note() == old_pipes.note() != ""
    assert new_pipes.is_quarantined("orders", 12)
    assert not new_pipes.is_quarantined("orders", 25)
    assert new_pipes.add("crm-eu", 4) == 2


def test_what_is_kept_fits_beside_an_offset() -> None:
    pipes = PoisonedPipes()
    for number in range(1_000):
        pipes.add(f"{'a' * 55}-{number}", 10**9)
    assert len(pipes.note()) < 2_000
    assert PoisonedPipes().note() == ""
