/*
 * The completion log, with attempts that overlap, crash anywhere and get unclear answers.
 *
 * Each attempt starts (append itself, then read what is complete), restores, aborts what the
 * checkpoint does not name and commits what it names, then reads records, cuts checkpoints,
 * completes them, commits and tidies up. Every attempt but the last may crash between any two
 * steps, and the next may start at any time, also while earlier ones still run. A power failure
 * ends all that run and may undo the entries of the log that were not synced.
 *
 * Shown, for every schedule (rules P2, P30, P31, P32, P34):
 *   - no record is committed twice, and when an attempt is done every record is committed;
 *   - whoever starts finds the newest checkpoint that was announced as complete, and its files;
 *   - once an attempt has begun, no earlier one completes a checkpoint;
 *   - nobody commits what no durable completion names;
 *   - nobody gets stuck, and the newest attempt is never fenced.
 *
 * Not modelled: the bytes of checkpoints, damaged files, checkpoint ids and their reservation,
 * the lock, several or staged sinks, retention of none, removals undone by a power failure.
 *
 * Choices (-D): ATTEMPTS, RECORDS, CHECKPOINTS per attempt, UNCLEAR answers and POWER failures in
 * all, and PLANTED, one of the errors below.
 */

#ifndef PLANTED
#define PLANTED 0
#endif
#define planted(error) (PLANTED == error)
#define APPEND_ANYWHERE   1  /* a completion takes the next free number, whoever has appended */
#define COMMIT_BEFORE     2  /* sinks are told before the completion is appended */
#define READ_FIRST        3  /* a starting attempt reads what is complete, then appends itself */
#define FORGET_IDENTITY   4  /* the target does not record what was committed */
#define FORGET_NAMES      5  /* a snapshot does not name transactions of earlier checkpoints */
#define DISCARD_DOUBTFUL  6  /* files are removed without settling an unclear answer */
#define TELL_UNSYNCED     7  /* sinks are told before the completion is durable */
#define ABORT_NAMED       8  /* a starting attempt aborts what the checkpoint names, too */
#define ABORT_NEWER       9  /* a starting attempt aborts transactions of newer ones, too */
#define LOOK_ONCE        10  /* a starting attempt does not look again whether it is the highest */
#define SETTLE_BY_NUMBER 11  /* a free number is taken for one that was never used */
#define READ_OVERTAKEN   12  /* a starting attempt restores although a newer one has appended */

#ifndef ATTEMPTS
#define ATTEMPTS 2
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef CHECKPOINTS
#define CHECKPOINTS 3
#endif
#ifndef UNCLEAR
#define UNCLEAR 1
#endif
#ifndef POWER
#define POWER 1
#endif

#define bit(i) (1 << (i))
#define NOTHING 255
#define LAST (ATTEMPTS - 1)
#define ALL_RECORDS (bit(RECORDS) - 1)

/* The log: a number holds nothing, an attempt, or the completion of checkpoint `entry - 1`. */
#define NUMBERS (ATTEMPTS * (CHECKPOINTS + 3) + 2)
#define FREE       0
#define AN_ATTEMPT 100
#define is_completion(n) (log[n] != FREE && log[n] != AN_ATTEMPT)
byte log[NUMBERS];
byte writer[NUMBERS];
bool synced[NUMBERS];

/* Checkpoint i of attempt a has the number a * CHECKPOINTS + i, and so has the transaction that
 * its barrier closes. */
#define ALL_CHECKPOINTS (ATTEMPTS * CHECKPOINTS)
byte position[ALL_CHECKPOINTS];
short named[ALL_CHECKPOINTS];   /* transactions that are not known to be committed */
bool files[ALL_CHECKPOINTS];

/* The target: what its transactions hold, the identities recorded by commits, what readers see. */
byte contents[ALL_CHECKPOINTS];
short recorded;
byte committed;

bool crashed[ATTEMPTS], ended[ATTEMPTS], appended[ATTEMPTS];
short durable;                  /* transactions that a durable completion has named */
byte number_of[ATTEMPTS];        /* the log's number of the attempt's own entry */
byte begun;                     /* the attempt with the highest one that has read the log */
byte announced;                 /* the log's number of the newest completion that was announced */
byte unclear, power;

hidden byte i, found;

inline find_top(result) {
    i = NUMBERS - 1;
    do
    :: log[i] == FREE && i > 0 -> i--
    :: else -> break
    od;
    result = i
}

/* The log's number of the newest completion, 0 if there is none. */
inline find_newest(result) {
    i = NUMBERS - 1;
    do
    :: i > 0 && !is_completion(i) -> i--
    :: else -> break
    od;
    result = i
}

inline find_newest_attempt(result) {
    i = NUMBERS - 1;
    do
    :: log[i] != AN_ATTEMPT -> i--
    :: else -> break
    od;
    result = i
}

inline sync_log() {
    i = 0;
    do
    :: i < NUMBERS ->
        synced[i] = true;
        if :: is_completion(i) -> durable = durable | named[log[i] - 1] :: else fi;
        i++
    :: else -> break
    od;
    skip
}

/* ---- one attempt: streamcp/storage/attempt.py and local.py */

/* What became of an answer that was unclear; `fenced` if somebody else has the number, or if it is
 * free and a higher one is not: it was taken, and a newer attempt has removed it (P34). */
inline settle() {
    find_top(found);
    if
    :: doubtful && log[top + 1] != FREE && writer[top + 1] == a ->
        top++;
        newest = top;
        unsynced = true
    :: doubtful && log[top + 1] != FREE && writer[top + 1] != a -> fenced = true
    :: doubtful && log[top + 1] == FREE && found > top && !planted(SETTLE_BY_NUMBER) ->
        fenced = true
    :: else
    fi;
    doubtful = false
}

/* Whether another attempt has begun. */
inline look_for_fence() {
    settle();
    if :: log[top + 1] != FREE -> fenced = true :: else fi
}

inline append_completion() {
    assert(begun == a);
    log[top + 1] = checkpoint + 1;
    writer[top + 1] = a;
    synced[top + 1] = false;
    printf("attempt %d: completes checkpoint %d at %d\n", a, checkpoint, top + 1)
}

inline adopt_completion() {
    top++;
    newest = top;
    unsynced = true
}

/* The lowest transaction that may be committed. A commit records its identity in the same step;
 * an identity that is recorded makes it a no-op (P30). */
inline commit_first() {
    i = 0;
    do
    :: !(allowed & bit(i)) -> i++
    :: else -> break
    od;
    committing = i;
    if
    :: !(recorded & bit(i)) || planted(FORGET_IDENTITY) ->
        printf("attempt %d: commits transaction %d\n", a, i);
        assert(!(committed & contents[i]));
        assert(durable & bit(i));
        committed = committed | contents[i];
        recorded = recorded | bit(i)
    :: else
    fi
}

/* At a start: everything but what the checkpoint names, and what newer attempts have opened. */
inline abort_others() {
    i = 0;
    do
    :: i < ALL_CHECKPOINTS ->
        if
        :: !(recorded & bit(i)) && (!(uncommitted & bit(i)) || planted(ABORT_NAMED)) &&
           (number_of[i / CHECKPOINTS] <= top || planted(ABORT_NEWER)) ->
            contents[i] = 0
        :: else
        fi;
        i++
    :: else -> break
    od;
    skip
}

inline restore_newest() {
    find_newest(newest);
    assert(newest >= announced || planted(READ_FIRST));
    if
    :: newest ->
        printf("attempt %d: restores checkpoint %d\n", a, log[newest] - 1);
        assert(files[log[newest] - 1]);
        at = position[log[newest] - 1];
        uncommitted = named[log[newest] - 1]
    :: else
    fi;
    allowed = uncommitted
}

/* The next one numbers itself behind the earlier ones, unless those never came so far. */
#define may_append(a) \
    ((a == 0 || appended[0] || crashed[0]) && (a <= 1 || appended[1] || crashed[1]))

mtype = { NONE, APPEND, SYNC, TELL, DISCARD, LOOK, FORGET, REMOVE };

#define open_transaction (a * CHECKPOINTS + barriers)
/* Enough barriers are kept for the final checkpoint, however many of them fail. */
#define may_cut (barriers + 1 + UNCLEAR < CHECKPOINTS || at == RECORDS)

proctype Attempt(byte a) {
    byte top, newest, at, barriers, victim;
    byte checkpoint = NOTHING, committing = NOTHING;
    short uncommitted, allowed;
    bool used, doubtful, unsynced, fenced, made, again;
    mtype disk = NONE;

    {
        do
        :: d_step { find_top(top); top++ }
            if
            :: planted(READ_FIRST) -> d_step { restore_newest(); skip }
            :: else
            fi;
            d_step {
                may_append(a) ->
                made = (log[top] == FREE);
                if
                :: made ->
                    log[top] = AN_ATTEMPT;
                    writer[top] = a;
                    synced[top] = false;
                    appended[a] = true;
                    printf("attempt %d: appends itself at %d\n", a, top)
                :: else
                fi
            }
            if
            :: made ->
                d_step { sync_log(); skip };
                d_step { find_top(found); made = (found == top || planted(LOOK_ONCE)) }
                if
                :: made -> break
                :: else ->
                    /* Two that start at once may pass each other for ever: here only once. */
                    if
                    :: again -> fenced = true; break
                    :: else -> again = true
                    fi
                fi
            :: else
            fi
        od;
        true;
        d_step {
            if :: top > number_of[begun] && !fenced -> begun = a :: else fi;
            number_of[a] = top;
            find_top(found);
            fenced = fenced || (found > top && !planted(READ_OVERTAKEN));
            if :: planted(READ_FIRST) || fenced :: else -> restore_newest() fi
        }
        d_step { if :: !fenced -> abort_others() :: else fi; skip };

        do
        /* the source and the barrier */
        :: d_step {
            !fenced && !allowed && at < RECORDS && barriers < CHECKPOINTS ->
            contents[open_transaction] = contents[open_transaction] | bit(at);
            used = true;
            at++
        }
        :: d_step {
            !fenced && checkpoint == NOTHING && barriers < CHECKPOINTS && may_cut &&
            (used || (uncommitted & ~allowed)) ->
            checkpoint = open_transaction;
            position[checkpoint] = at;
            files[checkpoint] = true;
            named[checkpoint] = (planted(FORGET_NAMES) -> 0 : uncommitted);
            if
            :: used ->
                uncommitted = uncommitted | bit(checkpoint);
                named[checkpoint] = named[checkpoint] | bit(checkpoint)
            :: else
            fi;
            used = false;
            barriers++;
            if :: planted(COMMIT_BEFORE) -> allowed = uncommitted :: else fi
        }
        /* the disk: one thing after another */
        :: d_step { !fenced && checkpoint != NOTHING && disk == NONE -> settle(); disk = APPEND }
        :: d_step {
            !fenced && disk == APPEND ->
            if :: planted(APPEND_ANYWHERE) -> find_top(top) :: else fi;
            if
            :: log[top + 1] == FREE -> append_completion(); adopt_completion(); disk = SYNC
            :: else -> fenced = true
            fi
        }
        /* An error although it was appended, and one although nobody knows that it was not. */
        :: d_step {
            !fenced && disk == APPEND && unclear < UNCLEAR && log[top + 1] == FREE ->
            unclear++;
            append_completion();
            doubtful = true;
            disk = DISCARD
        }
        :: d_step {
            !fenced && disk == APPEND && unclear < UNCLEAR ->
            unclear++;
            doubtful = true;
            disk = DISCARD
        }
        :: d_step {
            disk == SYNC ->
            if :: planted(TELL_UNSYNCED) :: else -> sync_log(); unsynced = false fi;
            disk = TELL
        }
        :: d_step { disk == SYNC && unclear < UNCLEAR -> unclear++; disk = DISCARD }
        :: d_step {
            disk == TELL ->
            printf("attempt %d: announces checkpoint %d\n", a, checkpoint);
            if :: top > announced -> announced = top :: else fi;
            allowed = uncommitted;
            checkpoint = NOTHING;
            disk = LOOK
        }
        /* It failed: its files go, if it is certain that it is not complete. */
        :: d_step {
            disk == DISCARD ->
            if :: planted(DISCARD_DOUBTFUL) :: else -> look_for_fence() fi;
            if
            :: !fenced && !(newest && log[newest] == checkpoint + 1) -> files[checkpoint] = false
            :: else
            fi;
            checkpoint = NOTHING;
            disk = NONE
        }
        :: d_step { disk == DISCARD -> checkpoint = NOTHING; disk = NONE } /* it could not look */
        /* Retention of one. */
        :: d_step {
            disk == LOOK ->
            look_for_fence();
            disk = (fenced || unsynced -> NONE : FORGET)
        }
        :: d_step {
            disk == FORGET ->
            i = newest - 1;
            do
            :: i > 0 && !is_completion(i) -> i--
            :: else -> break
            od;
            if
            :: i > 0 -> victim = log[i] - 1; log[i] = FREE; disk = REMOVE
            :: else -> disk = NONE
            fi
        }
        :: d_step { disk == REMOVE -> files[victim] = false; disk = FORGET }
        /* the sink */
        :: d_step { !fenced && allowed && committing == NOTHING -> commit_first() }
        :: d_step {
            committing != NOTHING ->
            allowed = allowed & ~bit(committing);
            uncommitted = uncommitted & ~bit(committing);
            committing = NOTHING
        }
        /* the end */
        :: d_step { fenced -> find_newest_attempt(found); assert(!made || writer[found] != a) }
            break
        :: d_step {
            !fenced && at == RECORDS && !used && !uncommitted && checkpoint == NOTHING &&
            disk == NONE ->
            assert(committed == ALL_RECORDS)
        }
            break
        od
    } unless { crashed[a] };
    ended[a] = true
}

proctype Failures() {
    byte each;
end:
    do
    :: d_step { !crashed[0] && !ended[0] && LAST > 0 -> crashed[0] = true }
    :: d_step { LAST > 1 && !crashed[1] && !ended[1] -> crashed[1] = true }
    :: atomic {
        /* Afterwards somebody must start who has seen nothing yet: the last one. */
        power < POWER && !appended[LAST] ->
        power++;
        printf("power failure\n");
        each = 0;
        do
        :: each < LAST -> crashed[each] = !ended[each] || crashed[each]; each++
        :: else -> break
        od;
        each = 0;
        do
        :: each < NUMBERS && !synced[each] -> log[each] = FREE; each++
        :: each < NUMBERS -> synced[each] = true; each++
        :: each == NUMBERS -> break
        od;
        each = 0
    }
    od
}

init {
    atomic {
        i = 0;
        do
        :: i < ATTEMPTS -> run Attempt(i); i++
        :: else -> break
        od;
        run Failures()
    }
}
