/*
 * One checkpoint that may escalate, over four subtasks that live in two processes.
 *
 * Two sources (0, 1), a map (2) and a sink (3); each record goes one way from a source to the
 * sink. Inside a process a barrier crosses at once, by plain calls; between processes it is a
 * message, behind what has been sent (in line) or ahead of what waits to be sent (overtaking).
 * The trigger and the escalation reach each process at a time of their own.
 *
 * Shown, for every schedule (rules P7 to P9, P12 to P15, P25, P26):
 *   - each record sent before its source's cut is in the checkpoint exactly once: captured on one
 *     channel or counted by the sink; each one sent after it is not in it; the map's state agrees;
 *   - every subtask acknowledges exactly once; an aligned checkpoint captures nothing;
 *   - nobody gets stuck, all records arrive, and at the end no channel is blocked or captured.
 *
 * Not modelled: values and order, several checkpoints, cancellation, coroutines, loops.
 *
 * Choices (-D): GRAPH 1 or 2, MODE ALIGNED, UNALIGNED or ADAPTIVE, RECORDS per source, CAPACITY,
 * ENDS (1: the sources end, at any time; 0: they do not), and PLANTED, one of the errors below.
 */

#ifndef PLANTED
#define PLANTED 0
#endif
#define planted(error) (PLANTED == error)
#define FORGET_PARTIAL    1  /* partial batches are not handed on before a barrier overtakes */
#define FORGET_HAND       2  /* the element in hand is not captured */
#define FORGET_UNSENT     3  /* the sender does not capture what its barrier overtakes */
#define CAPTURE_BEHIND    4  /* escalation captures what stands behind a queued barrier */
#define CAPTURE_DELIVERED 5  /* escalation captures a channel that had delivered its barrier */
#define CLOSE_EARLY       6  /* a channel whose barrier is still to come is not captured further */
#define CLOSE_AT_TAKE     7  /* a late barrier in line ends the capture when it is taken */
#define FORWARD_FIRST     8  /* the barrier is forwarded, the snapshot is taken later */
#define FORGET_RESUME     9  /* escalation leaves channels blocked */
#define ESCALATE_AGAIN   10  /* an escalation after the snapshot is not ignored */
#define FINISHED_AT_ONCE 11  /* a finished sender counts as delivered before its records came */
#define END_UNNOTED      12  /* a subtask ends while a plan that counts it as running is under way */

#define ALIGNED   0
#define UNALIGNED 1
#define ADAPTIVE  2

#ifndef GRAPH
#define GRAPH 1
#endif
#ifndef MODE
#define MODE ADAPTIVE
#endif
#ifndef RECORDS
#define RECORDS 2
#endif
#ifndef ENDS
#define ENDS 1
#endif
#ifndef CAPACITY
#define CAPACITY 1
#endif

#define MAP  2
#define SINK 3

/* Elements of a channel; smaller numbers are records. */
#define BARRIER    20  /* in line */
#define OVERTAKING 21
#define END        22  /* of input */
#define is_record(x) ((x) < BARRIER)

#define TRIGGER  30
#define ESCALATE 31

#if GRAPH == 1
/* Process 0: source 0, map. Process 1: source 1, sink. Channels: 0 and 2 inside a process. */
byte sender[4]   = {0, 1, 1, MAP};
byte receiver[4] = {MAP, MAP, SINK, SINK};
byte home[4]     = {0, 1, 0, 1};
byte inputs[4]   = {0, 0, 3, 12};
byte outputs[4]  = {1, 6, 8, 0};
#define MAP_OUTPUT 3
#else
/* Process 0: both sources, sink. Process 1: map, all of whose inputs come from elsewhere. */
byte sender[4]   = {0, 1, MAP, 1};
byte receiver[4] = {MAP, MAP, SINK, SINK};
byte home[4]     = {0, 0, 1, 0};
byte inputs[4]   = {0, 0, 3, 12};
byte outputs[4]  = {1, 10, 4, 0};
#define MAP_OUTPUT 2
#endif

#define between_processes(c) (home[sender[c]] != home[receiver[c]])
#define bit(i) (1 << (i))
#define record_bit(x) (1 << ((x) - 1))

/* A channel: the sender's partial batch; between processes what waits to be sent, and what is on
 * the wire; the receiver's queue. One record stands for a batch. */
byte partial[4];
chan unsent[4] = [RECORDS * 2 + 2] of { byte };
chan wire[4]   = [RECORDS * 2 + 3] of { byte };
chan queue[4]  = [RECORDS * 2 + 2] of { byte };
byte waiting[4];    /* records unsent */
byte occupied[4];   /* records on the wire, queued or in hand: those that need room there */
bool end_came[4];   /* the end of input is in the receiver's queue, or was taken from it */

/* A subtask. Masks of channels by number, of records by record_bit. */
byte sent[4];       /* by each source */
byte hand[4], hand_channel[4];
byte counted[4];    /* records worked off: the state */
byte blocked[4], ended[4], arrived[4];
bool finished[4];

mtype = { IDLE, ALIGNING, CAPTURING };
mtype phase[4] = IDLE;
bool taken[4];      /* its snapshot of the checkpoint */
byte cut[4];        /* the state in its snapshot */
bool late[4];       /* planted(FORWARD_FIRST): the snapshot is still to be taken */
byte acknowledged[4];
byte capturing;     /* channels that go on being captured */
byte captured[4];   /* records, per channel */

/* The coordinator: its messages reach a process in order. */
chan control[2] = [2] of { byte };
bool planned;
byte plan_finished; /* subtasks that were finished at the trigger (P7) */
bool begun[2];
bool escalated[2];

/* The work list of the process in which something happens: one at a time, empty between steps. */
chan work = [4] of { byte };

/* Scratch of the steps below. */
hidden byte i, j, k, x, length, crossed, in_line, delivered, behind, found;

/* ---- channels */

inline capture(channel, record) {
    assert(!(captured[channel] & record_bit(record)));
    captured[channel] = captured[channel] | record_bit(record);
    printf("channel %d: record %d captured\n", channel, record)
}

/* Into the receiver's queue: what goes on being captured is added to its snapshot (P14). A barrier
 * in line ends the capture where it stands, not when it is taken: records follow behind it (P26). */
inline deliver(channel, element) {
    if
    :: element == BARRIER && phase[receiver[channel]] == CAPTURING && !planted(CLOSE_AT_TAKE) ->
        close_capture(receiver[channel], channel)
    :: else ->
        queue[channel]!element;
        if
        :: is_record(element) && (capturing & bit(channel)) -> capture(channel, element)
        :: element == END -> end_came[channel] = true
        :: else
        fi
    fi
}

inline push(channel, element) {
    if
    :: between_processes(channel) ->
        unsent[channel]!element;
        if :: is_record(element) -> waiting[channel]++ :: else fi
    :: else ->
        if :: is_record(element) -> occupied[channel]++ :: else fi;
        deliver(channel, element)
    fi
}

inline flush(channel) {
    if
    :: partial[channel] -> push(channel, partial[channel]); partial[channel] = 0
    :: else
    fi
}

/* Behind all that was emitted. */
inline send_in_line(t, element) {
    k = 0;
    do
    :: k < 4 && (outputs[t] & bit(k)) -> flush(k); push(k, element); k++
    :: k < 4 && !(outputs[t] & bit(k)) -> k++
    :: k == 4 -> break
    od;
    skip
}

#define load(c) ((between_processes(c) -> waiting[c] : occupied[c]) + (partial[c] != 0))
#define has_room(c) (load(c) < CAPACITY)
#define is_output(t, c) (outputs[t] & bit(c))
#define writable(t) \
    ((!is_output(t, 0) || has_room(0)) && (!is_output(t, 1) || has_room(1)) && \
     (!is_output(t, 2) || has_room(2)) && (!is_output(t, 3) || has_room(3)))

/* What lies in a receiver's queue before the barrier, which is taken out of the line; the element
 * in hand first (P15, P26). */
inline capture_queue(t, channel) {
    if
    :: hand[t] && hand_channel[t] == channel && !planted(FORGET_HAND) -> capture(channel, hand[t])
    :: else
    fi;
    behind = false;
    length = len(queue[channel]);
    do
    :: length > 0 ->
        queue[channel]?x;
        if
        :: x == BARRIER -> behind = !planted(CAPTURE_BEHIND)
        :: else ->
            if :: is_record(x) && !behind -> capture(channel, x) :: else fi;
            queue[channel]!x
        fi;
        length--
    :: else -> break
    od;
    skip
}

/* What is overtaken before it was sent belongs to the sender's snapshot (P15). */
inline capture_unsent(channel) {
    length = (planted(FORGET_UNSENT) -> 0 : len(unsent[channel]));
    do
    :: length > 0 ->
        unsent[channel]?x;
        if :: is_record(x) -> capture(channel, x) :: else fi;
        unsent[channel]!x;
        length--
    :: else -> break
    od
}

/* ---- the alignment of one subtask: streamcp/checkpoint/alignment.py */

#define missing(t) (inputs[t] & ~arrived[t] & ~ended[t])

inline take_snapshot(t) {
    printf("subtask %d: snapshot\n", t);
    assert(!taken[t]);
    taken[t] = true;
    if
    :: planted(FORWARD_FIRST) -> late[t] = true
    :: else -> cut[t] = counted[t]
    fi
}

inline acknowledge(t) {
    printf("subtask %d: acknowledges\n", t);
    phase[t] = IDLE;
    acknowledged[t]++
}

inline snapshot_if_aligned(t) {
    if
    :: !missing(t) ->
        take_snapshot(t);
        send_in_line(t, BARRIER);
        blocked[t] = 0;
        acknowledge(t)
    :: else
    fi
}

/* Whether the barrier counts as arrived because its sender is finished in the plan (P9). From
 * another process records may still be on their way: then the end of input ends the capture. */
#define counts_as_arrived(c) \
    ((plan_finished & bit(sender[c])) && (end_came[c] || planted(FINISHED_AT_ONCE)))

inline find_in_line(t) {
    in_line = 0;
    j = 0;
    do
    :: j < 4 ->
        found = queue[j]??[BARRIER];
        if :: (inputs[t] & bit(j)) && found -> in_line = in_line | bit(j) :: else fi;
        j++
    :: else -> break
    od;
    skip
}

/* `arriving` is the mask of the channel on which the barrier came, 0 for the coordinator. */
inline go_unaligned(t, arriving) {
    find_in_line(t);
    delivered = ended[t] | (planted(CAPTURE_DELIVERED) -> 0 : arrived[t]);
    arrived[t] = arrived[t] | in_line | (arriving);
    j = 0;
    do
    :: j < 4 ->
        if
        :: (inputs[t] & bit(j)) && !(delivered & bit(j)) ->
            capture_queue(t, j);
            if :: counts_as_arrived(j) -> arrived[t] = arrived[t] | bit(j) :: else fi
        :: else
        fi;
        j++
    :: else -> break
    od;
    if :: planted(CLOSE_EARLY) :: else -> capturing = capturing | missing(t) fi;
    if :: planted(FORGET_RESUME) :: else -> blocked[t] = 0 fi;
    take_snapshot(t);
    j = 0;
    do
    :: j < 4 ->
        if
        :: is_output(t, j) && between_processes(j) -> capture_unsent(j); wire[j]!OVERTAKING
        :: is_output(t, j) && !between_processes(j) -> work!j
        :: else
        fi;
        j++
    :: else -> break
    od;
    phase[t] = CAPTURING;
    acknowledge_if_whole(t)
}

inline acknowledge_if_whole(t) {
    if :: !missing(t) -> acknowledge(t) :: else fi
}

inline close_capture(t, channel) {
    if
    :: !(arrived[t] & bit(channel)) ->
        arrived[t] = arrived[t] | bit(channel);
        capturing = capturing & ~bit(channel);
        acknowledge_if_whole(t)
    :: else
    fi
}

inline barrier_in_line(t, channel) {
    if
    :: phase[t] == CAPTURING -> close_capture(t, channel)
    :: phase[t] != CAPTURING && taken[t] /* old: dropped */
    :: else ->
        phase[t] = ALIGNING;
        arrived[t] = arrived[t] | bit(channel);
        if
        :: missing(t) -> blocked[t] = blocked[t] | bit(channel)
        :: else -> snapshot_if_aligned(t)
        fi
    fi
}

inline barrier_overtaking(t, arriving, channel) {
    if
    :: phase[t] == CAPTURING && (arriving) -> close_capture(t, channel)
    :: phase[t] != CAPTURING && !taken[t] -> go_unaligned(t, arriving)
    :: else
    fi
}

inline end_of_input(t, channel) {
    ended[t] = ended[t] | bit(channel);
    if
    :: phase[t] == ALIGNING -> snapshot_if_aligned(t)
    :: phase[t] == CAPTURING -> close_capture(t, channel)
    :: else
    fi
}

/* ---- one process: streamcp/runtime/work_list.py */

inline hand_on(p) {
    j = (planted(FORGET_PARTIAL) -> 4 : 0);
    do
    :: j < 4 ->
        if :: home[sender[j]] == p -> flush(j) :: else fi;
        j++
    :: else -> break
    od;
    skip
}

inline work_off() {
    do
    :: len(work) -> work?crossed; barrier_overtaking(receiver[crossed], bit(crossed), crossed)
    :: else -> break
    od;
    skip
}

/* Who else gets the barrier from the coordinator: whose senders are all finished (P7). */
#define is_triggered(t) \
    ((t) < MAP || ((t) == MAP && (plan_finished & 3) == 3) || \
     ((t) == SINK && (plan_finished & (bit(MAP) | 2)) == (bit(MAP) | 2)))

inline start_at(t) {
    if
    :: plan_finished & bit(t) -> take_snapshot(t); acknowledge(t)
    :: !(plan_finished & bit(t)) && is_triggered(t) && MODE == UNALIGNED ->
        barrier_overtaking(t, 0, 0)
    :: !(plan_finished & bit(t)) && is_triggered(t) && MODE != UNALIGNED && !taken[t] ->
        phase[t] = ALIGNING;
        snapshot_if_aligned(t)
    :: else
    fi
}

inline escalate_at(t) {
    find_in_line(t);
    if
    :: (phase[t] == ALIGNING || in_line) && !taken[t] -> go_unaligned(t, 0)
    :: inputs[t] && taken[t] && planted(ESCALATE_AGAIN) -> go_unaligned(t, 0)
    :: else
    fi
}

proctype Control(byte p) {
end:
    do
    :: d_step {
        control[p]?[TRIGGER] -> control[p]?TRIGGER;
        begun[p] = true;
        printf("process %d: trigger\n", p);
        if :: MODE == UNALIGNED -> hand_on(p) :: else fi;
        i = 0;
        do
        :: i < 4 -> if :: home[i] == p -> start_at(i) :: else fi; i++
        :: else -> break
        od;
        work_off();
        skip
    }
    :: d_step {
        control[p]?[ESCALATE] -> control[p]?ESCALATE;
        escalated[p] = true;
        printf("process %d: escalation\n", p);
        hand_on(p);
        i = 0;
        do
        :: i < 4 ->
            if :: home[i] == p && !finished[i] -> escalate_at(i); work_off() :: else fi;
            i++
        :: else -> break
        od;
        skip
    }
    od
}

/* ---- subtasks and wires */

/* Not while a plan that counts it as running is on its way to it (P7). */
#define may_finish(t) (ENDS && (planned == begun[home[t]] || planted(END_UNNOTED)))

inline finish(t) {
    send_in_line(t, END);
    printf("subtask %d: ends\n", t);
    finished[t] = true
}

/* A source sends each record to any of its outputs. */
proctype Sending(byte c) {
end:
    do
    :: d_step {
        sender[c] < MAP && sent[sender[c]] < RECORDS && writable(sender[c]) ->
        sent[sender[c]]++;
        partial[c] = sender[c] * RECORDS + sent[sender[c]];
        printf("source %d: emits record %d to channel %d\n", sender[c], partial[c], c);
        counted[sender[c]] = counted[sender[c]] | record_bit(partial[c])
    }
    :: d_step { partial[c] -> flush(c) }
    od
}

/* Control elements need no room in the outputs. */
proctype Taking(byte c) {
    byte t = receiver[c];
end:
    do
    :: d_step {
        !finished[t] && !hand[t] && !(blocked[t] & bit(c)) && nempty(queue[c]) &&
        (writable(t) || queue[c]?[BARRIER] || queue[c]?[END]) ->
        queue[c]?x;
        printf("subtask %d: takes %d from channel %d\n", t, x, c);
        if
        :: x == BARRIER -> barrier_in_line(t, c)
        :: x == END -> end_of_input(t, c)
        :: else -> hand[t] = x; hand_channel[t] = c
        fi
    }
    od
}

proctype Subtask(byte t) {
end:
    do
    :: d_step {
        hand[t] && writable(t) ->
        printf("subtask %d: works record %d off\n", t, hand[t]);
        counted[t] = counted[t] | record_bit(hand[t]);
        if :: t == MAP -> partial[MAP_OUTPUT] = hand[t] :: else fi;
        occupied[hand_channel[t]]--;
        hand[t] = 0;
        hand_channel[t] = 0
    }
    :: d_step {
        !finished[t] && may_finish(t) && !hand[t] &&
        ended[t] == inputs[t] && (t >= MAP || sent[t] == RECORDS) ->
        finish(t)
    }
    :: d_step { late[t] -> cut[t] = counted[t]; late[t] = false }
    od
}

/* Records are sent when the receiver has room; before a barrier that stands in line when the
 * escalation comes they may be sent beyond it (P25). */
proctype Wire(byte w) {
end:
    do
    :: d_step {
        nempty(unsent[w]) && (unsent[w]?[BARRIER] || unsent[w]?[END] || occupied[w] < CAPACITY ||
            (escalated[home[sender[w]]] && unsent[w]??[BARRIER])) ->
        unsent[w]?x;
        wire[w]!x;
        printf("channel %d: sends %d\n", w, x);
        if :: is_record(x) -> waiting[w]--; occupied[w]++ :: else fi
    }
    :: d_step {
        nempty(wire[w]) ->
        wire[w]?x;
        printf("channel %d: receives %d\n", w, x);
        if
        :: x == OVERTAKING ->
            hand_on(home[receiver[w]]);
            barrier_overtaking(receiver[w], bit(w), w);
            work_off()
        :: else -> deliver(w, x)
        fi
    }
    od
}

proctype Coordinator() {
    d_step {
        planned = true;
        printf("coordinator: triggers\n");
        i = 0;
        do
        :: i < 4 ->
            if :: finished[i] -> plan_finished = plan_finished | bit(i) :: else fi;
            i++
        :: else -> break
        od;
        control[0]!TRIGGER;
        control[1]!TRIGGER
    }
#if MODE == ADAPTIVE
    if
    :: d_step { control[0]!ESCALATE; control[1]!ESCALATE }
    :: skip
    fi
#endif
}

/* ---- what is shown */

#define ALL_RECORDS (bit(2 * RECORDS) - 1)

#define in_checkpoint(r) \
    (((captured[0] & record_bit(r)) != 0) + ((captured[1] & record_bit(r)) != 0) + \
     ((captured[2] & record_bit(r)) != 0) + ((captured[3] & record_bit(r)) != 0) + \
     ((cut[SINK] & record_bit(r)) != 0))
#define source_of(r) (((r) - 1) / RECORDS)
#define before_cut(r) ((cut[source_of(r)] & record_bit(r)) != 0)
/* The map's state says that it has worked off just what is behind it in the checkpoint. */
#define behind_map(r) \
    ((counted[MAP] & record_bit(r)) && ((captured[MAP_OUTPUT] | cut[SINK]) & record_bit(r)))

#define everybody(what) (what[0] && what[1] && what[2] && what[3])
#define nobody(what) (!what[0] && !what[1] && !what[2] && !what[3])

active proctype Check() {
    atomic {
        run Control(0); run Control(1); run Coordinator();
        i = 0;
        do
        :: i < 4 ->
            run Subtask(i); run Sending(i); run Taking(i);
            if :: between_processes(i) -> run Wire(i) :: else fi;
            i++
        :: else -> break
        od;
        skip
    }
    /* Nobody gets stuck: else this is an invalid end state. */
    (ENDS -> everybody(finished) : counted[SINK] == ALL_RECORDS) && everybody(acknowledged) && empty(control[0]) && empty(control[1]) &&
        nobody(late) && begun[0] && begun[1] ->
    d_step {
        i = 0;
        do
        :: i < 4 ->
            assert(acknowledged[i] == 1);
            assert(!blocked[i]);
            assert(MODE != ALIGNED || !captured[i]);
            i++
        :: else -> break
        od;
        assert(!capturing);
        i = 1;
        do
        :: i <= 2 * RECORDS ->
            assert(counted[SINK] & record_bit(i));
            assert(in_checkpoint(i) == before_cut(i));
            assert(((cut[MAP] & record_bit(i)) != 0) == (behind_map(i) != 0));
            i++
        :: else -> break
        od;
        skip
    }
}
