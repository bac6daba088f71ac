/*
 * All verbs between two processes, at each level, with and without trust.
 *
 * The parent sends and a child receives. The child is another program (the same one, by exec) or just forked before
 * the channel is made. Beside the channel there is a stream by which the two keep step: "go" says that a message
 * was sent and all stray stores to it were made, "done" that it was looked at.
 */
#include "check.h"

#include <fcntl.h>
#include <sys/socket.h>

struct kind {
    const char *name;
    uint32_t level;
    int trusting;
};

static const struct kind kinds[] = {
    { "mmu", PF_LEVEL_MMU, 1 },       { "copy", PF_LEVEL_COPY, 1 },          { "sealed", PF_LEVEL_SEALED, 1 },
    { "leased", PF_LEVEL_LEASED, 1 }, { "copy, guarded", PF_LEVEL_COPY, 0 }, { "sealed, guarded", PF_LEVEL_SEALED, 0 },
};

enum { SMALL = 100, BIG = 3000000, STRAY = 0x99, WRITTEN = 0x55 };

static int donates(const struct kind *kind)
{
    return kind->trusting && (kind->level == PF_LEVEL_MMU || kind->level == PF_LEVEL_COPY);
}

static int lends(const struct kind *kind)
{
    return kind->level != PF_LEVEL_COPY;
}

static pf_config config_of(const struct kind *kind)
{
    pf_config config = small_config();
    config.level = kind->level;
    config.flags = PF_CONFIG_REQUIRE_LEVEL;
    return config;
}

static void say(int step)
{
    CHECK(write(step, "x", 1) == 1);
}

static void hear(int step)
{
    char byte;
    CHECK(read(step, &byte, 1) == 1);
}

/* What the receiver expects of a message. -1: whatever it is. */
struct expected {
    size_t len;
    int byte;
    int verb;
    int level;
    uint64_t tag;
};

static pf_loan *received(pf_receiver *rx, unsigned flags, struct expected expected)
{
    pf_loan *loan;
    const void *data;
    size_t len;
    int verb, level;
    uint64_t tag;
    OK(pf_recv(rx, flags, LONG_MS, &loan));
    OK(pf_loan_data(loan, &data, &len));
    CHECK(len == expected.len && all_are(data, len, expected.byte));
    OK(pf_loan_verb(loan, &verb));
    OK(pf_loan_level(loan, &level));
    OK(pf_loan_tag(loan, &tag));
    CHECK(expected.verb < 0 || verb == expected.verb);
    CHECK(expected.level < 0 || level == expected.level);
    CHECK(tag == expected.tag);
    return loan;
}

static struct expected expects(size_t len, int byte, int verb, int level, uint64_t tag)
{
    struct expected expected;
    expected.len = len;
    expected.byte = byte;
    expected.verb = verb;
    expected.level = level;
    expected.tag = tag;
    return expected;
}

static void overwrite(pf_loan *loan)
{
    void *data;
    size_t len;
    OK(pf_loan_data_mut(loan, &data, &len));
    memset(data, WRITTEN, len);
}

static int the_receiver(const struct kind *kind, int fd, int step)
{
    pf_config config = config_of(kind);
    pf_receiver *rx;
    pf_loan *loan;
    const void *data;
    const volatile unsigned char *shared;
    size_t len;
    int level, loan_verb = lends(kind) ? PF_VERB_LOAN : PF_VERB_COPY;
    int32_t pid;
    uint32_t uid, gid;
    struct traces before;
    warm_up();
    before = traces_before();
    OK((kind->trusting ? pf_receiver_open_trusted : pf_receiver_open)(fd, &config, &rx));
    OK(pf_receiver_level(rx, &level));
    CHECK(level == (int)kind->level);
    OK(pf_receiver_peer(rx, &pid, &uid, &gid));
    CHECK(pid == getppid() && uid == getuid() && gid == getgid());

    /* By copy. */
    hear(step);
    OK(pf_loan_release(received(rx, PF_RECV_READ, expects(SMALL, 1, PF_VERB_INLINE, PF_LEVEL_COPY, 11))));
    hear(step);
    OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 2, PF_VERB_COPY, PF_LEVEL_COPY, 12))));

    /* By loan: written to by both, and by neither to be seen. */
    hear(step);
    loan = received(rx, PF_RECV_READ, expects(BIG, 3, loan_verb, level, 13));
    overwrite(loan);
    OK(pf_loan_data(loan, &data, &len));
    CHECK(len == BIG && all_are(data, len, WRITTEN));
    say(step);
    hear(step);
    OK(pf_loan_data(loan, &data, &len));
    CHECK(all_are(data, len, WRITTEN));
    OK(pf_loan_release(loan));

    /* Writable from the start; then the memory of before shows the next message and not what was written. */
    hear(step);
    loan = received(rx, PF_RECV_COPY_ON_WRITE, expects(BIG, 4, loan_verb, level, 14));
    overwrite(loan);
    OK(pf_loan_release(loan));

    /* Moved to memory of this side: the sender has its memory back, and this side the bytes. */
    hear(step);
    loan = received(rx, PF_RECV_TRANSFER, expects(BIG, 5, loan_verb, level, 15));
    say(step);
    hear(step);
    OK(pf_loan_data(loan, &data, &len));
    CHECK(all_are(data, len, 5));
    overwrite(loan);
    OK(pf_loan_transfer(loan));
    OK(pf_loan_release(loan));

    /* Again. */
    if (lends(kind)) {
        hear(step);
        OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 6, PF_VERB_LOAN, level, 16))));
        if (kind->level == PF_LEVEL_SEALED) {
            OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 6, PF_VERB_LOAN, level, 21))));
        }
        OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 6, PF_VERB_LOAN, level, 22))));
    }

    /* As is cheapest. */
    hear(step);
    OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 7, -1, -1, 23))));
    if (kind->trusting) {
        hear(step);
        OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 8, -1, -1, 24))));
    }
    if (kind->level != PF_LEVEL_SEALED) {
        hear(step);
        OK(pf_loan_release(received(rx, PF_RECV_READ, expects(BIG, 9, PF_VERB_COPY, PF_LEVEL_COPY, 25))));
    }

    if (donates(kind)) {
        /* Donated: written where it is. */
        hear(step);
        loan = received(rx, PF_RECV_READ, expects(BIG, 10, PF_VERB_DONATE, PF_LEVEL_TYPED, 17));
        overwrite(loan);
        OK(pf_loan_release(loan));
        hear(step);
        loan = received(rx, PF_RECV_READ, expects(BIG, 11, PF_VERB_DONATE, PF_LEVEL_TYPED, 26));
        say(step);
        hear(step);
        OK(pf_loan_data(loan, &data, &len));
        CHECK(all_are(data, len, 11));
        OK(pf_loan_release(loan));
        say(step);
        /* Shared, and seen to change. */
        hear(step);
        loan = received(rx, PF_RECV_SHARED, expects(BIG, 12, PF_VERB_SHARE, PF_LEVEL_TYPED, 27));
        OK(pf_loan_data(loan, &data, &len));
        say(step);
        hear(step);
        shared = (const volatile unsigned char *)data;
        CHECK(shared[0] == 13 && shared[len - 1] == 13);
        OK(pf_loan_release(loan));
        /* Shared, and copied: it does not change. */
        hear(step);
        loan = received(rx, PF_RECV_READ, expects(BIG, 14, PF_VERB_SHARE, PF_LEVEL_TYPED, 28));
        say(step);
        hear(step);
        OK(pf_loan_data(loan, &data, &len));
        CHECK(all_are(data, len, 14));
        OK(pf_loan_release(loan));
    }
    ANSWERS(PF_EPEER_DEAD, pf_recv(rx, PF_RECV_READ, LONG_MS, &loan));
    OK(pf_receiver_free(rx));
    before.descriptors--; /* The socket was open before. */
    nothing_is_left_since(before);
    return 0;
}

/* Its bytes are these when it is home. */
static void comes_home(pf_lent *lent, int byte)
{
    pf_buffer *buffer;
    void *data;
    size_t len;
    OK(pf_lent_wait(lent, LONG_MS, &buffer));
    OK(pf_buffer_data(buffer, &data, &len));
    CHECK(all_are(data, len, byte));
    OK(pf_buffer_free(buffer));
}

static void is_home_soon(pf_lent *lent)
{
    int home = 0, tries;
    for (tries = 0; tries < LONG_MS && !home; tries++) {
        const struct timespec soon = { 0, 1000 * 1000 };
        OK(pf_lent_is_home(lent, &home));
        nanosleep(&soon, NULL);
    }
    CHECK(home);
}

static void stray(const struct kind *kind, void *data, size_t len)
{
    /* Of a copy that is not promised: see pf_sender_loan(). */
    if (lends(kind)) {
        memset(data, STRAY, len);
    }
}

static void the_sender(const struct kind *kind, int fd, int step)
{
    static unsigned char bytes[BIG];
    pf_config config = config_of(kind);
    pf_sender *tx;
    pf_buffer *buffer;
    pf_lent *lent, *again;
    void *data;
    const void *read_only;
    size_t len, capacity;
    int level, verb;
    uint64_t sent, out;
    OK((kind->trusting ? pf_sender_open_trusted : pf_sender_open)(fd, &config, &tx));
    OK(pf_sender_level(tx, &level));
    CHECK(level == (int)kind->level);

    memset(bytes, 1, SMALL);
    OK(pf_sender_copy(tx, bytes, SMALL, 11, LONG_MS));
    memset(bytes, STRAY, SMALL);
    say(step);
    memset(bytes, 2, BIG);
    OK(pf_sender_copy(tx, bytes, BIG, 12, PF_WAIT));
    memset(bytes, STRAY, BIG);
    say(step);

    OK(pf_sender_buffer(tx, 10, PF_WAIT, &buffer));
    OK(pf_buffer_capacity(buffer, &capacity));
    CHECK(capacity >= 10);
    OK(pf_buffer_free(buffer));

    buffer = filled(tx, BIG, 3);
    OK(pf_buffer_data(buffer, &data, &len));
    OK(pf_sender_loan(tx, buffer, 13, LONG_MS, &lent));
    stray(kind, data, len);
    say(step);
    hear(step);
    /* While the receiver has it. */
    stray(kind, data, len);
    OK(pf_lent_data(lent, &read_only, &len));
    CHECK(len == BIG);
    OK(pf_lent_verb(lent, &verb));
    CHECK(verb == (lends(kind) ? PF_VERB_LOAN : PF_VERB_COPY));
    /* Sealed memory that its receiver writes to is copied, and given back by that. */
    if (lends(kind) && kind->level != PF_LEVEL_SEALED) {
        ANSWERS(PF_EWOULDBLOCK, pf_lent_wait(lent, PF_NOWAIT, &buffer));
        ANSWERS(PF_ETIMEDOUT, pf_lent_wait(lent, 1, &buffer));
    }
    ANSWERS(PF_EUSAGE, pf_lent_data_mut(lent, &data, &len));
    say(step);
    comes_home(lent, 3);

    OK(pf_sender_buffer(tx, 10, LONG_MS, &buffer));
    OK(pf_buffer_free(buffer));
    OK(pf_sender_buffer(tx, BIG, LONG_MS, &buffer));
    memset(bytes, 4, BIG);
    OK(pf_buffer_write(buffer, bytes, BIG - 1));
    OK(pf_buffer_data(buffer, &data, &len));
    CHECK(len == BIG - 1);
    OK(pf_buffer_set_len(buffer, BIG));
    ((unsigned char *)data)[BIG - 1] = 4;
    OK(pf_sender_loan(tx, buffer, 14, PF_NOWAIT, &lent));
    say(step);
    comes_home(lent, 4);

    OK(pf_sender_loan(tx, filled(tx, BIG, 5), 15, PF_WAIT, &lent));
    say(step);
    hear(step);
    is_home_soon(lent);
    comes_home(lent, 5);
    say(step);

    if (lends(kind)) {
        buffer = filled(tx, BIG, 6);
        OK(pf_buffer_data(buffer, &data, &len));
        OK(pf_sender_loan(tx, buffer, 16, PF_WAIT, &lent));
        stray(kind, data, len);
        say(step);
        if (kind->level == PF_LEVEL_SEALED) {
            OK(pf_sender_resend(tx, lent, 21, &again));
            OK(pf_lent_free(again));
        } else {
            ANSWERS(PF_EUSAGE, pf_sender_resend(tx, lent, 21, &again));
        }
        OK(pf_sender_loan_again(tx, lent, 22, &again));
        ANSWERS(PF_EUSAGE, pf_lent_free(lent));
        comes_home(again, 6);
    }

    OK(pf_sender_auto(tx, filled(tx, BIG, 7), PF_ARRIVED_TOUCHED, 23, &lent));
    say(step);
    OK(pf_lent_free(lent));
    buffer = filled(tx, BIG, 8);
    if (kind->trusting) {
        OK(pf_sender_auto_give(tx, buffer, PF_ARRIVED_UNTOUCHED, 24, &verb));
        say(step);
    } else {
        ANSWERS(PF_EUSAGE, pf_sender_auto_give(tx, buffer, PF_ARRIVED_UNTOUCHED, 24, &verb));
        ANSWERS(PF_EUSAGE, pf_sender_donate(tx, buffer, 0));
        ANSWERS(PF_EUSAGE, pf_sender_donate_zero(tx, buffer, 26, &lent));
        ANSWERS(PF_EUSAGE, pf_sender_share(tx, buffer, 27, &lent));
        OK(pf_buffer_free(buffer));
    }
    if (kind->level == PF_LEVEL_SEALED) {
        buffer = filled(tx, BIG, 9);
        ANSWERS(PF_EUSAGE, pf_sender_copy_buffer(tx, buffer, 25, &lent));
        OK(pf_buffer_free(buffer));
    } else {
        OK(pf_sender_copy_buffer(tx, filled(tx, BIG, 9), 25, &lent));
        say(step);
        OK(pf_lent_verb(lent, &verb));
        CHECK(verb == PF_VERB_COPY);
        /* A copy is no loan, so the token stays. */
        ANSWERS(PF_EUSAGE, pf_sender_loan_again(tx, lent, 22, &again));
        comes_home(lent, 9);
    }

    if (donates(kind)) {
        OK(pf_sender_donate(tx, filled(tx, BIG, 10), 17));
        say(step);
        buffer = filled(tx, BIG, 11);
        OK(pf_buffer_data(buffer, &data, &len));
        OK(pf_sender_donate_zero(tx, buffer, 26, &lent));
        CHECK(all_are(data, len, 0));
        memset(data, STRAY, len);
        say(step);
        hear(step);
        OK(pf_lent_data_mut(lent, &data, &len));
        CHECK(len == BIG && all_are(data, len, STRAY));
        ANSWERS(PF_EUSAGE, pf_lent_wait(lent, PF_WAIT, &buffer));
        say(step);
        hear(step);
        is_home_soon(lent);
        OK(pf_lent_free(lent));

        buffer = filled(tx, BIG, 12);
        OK(pf_buffer_data(buffer, &data, &len));
        OK(pf_sender_share(tx, buffer, 27, &lent));
        say(step);
        hear(step);
        memset(data, 13, len);
        say(step);
        comes_home(lent, 13);

        OK(pf_sender_share(tx, filled(tx, BIG, 14), 28, &lent));
        say(step);
        hear(step);
        OK(pf_lent_data_mut(lent, &data, &len));
        memset(data, STRAY, len);
        say(step);
        comes_home(lent, STRAY);
    } else if (kind->trusting) {
        /* What the channel has not agreed on costs nothing. */
        buffer = filled(tx, BIG, 1);
        ANSWERS(PF_EUSAGE, pf_sender_donate(tx, buffer, 0));
        ANSWERS(PF_EUSAGE, pf_sender_share(tx, buffer, 0, &lent));
        ANSWERS(PF_EUSAGE, pf_sender_donate_zero(tx, buffer, 0, &lent));
        OK(pf_buffer_data(buffer, &data, &len));
        CHECK(len == BIG && all_are(data, len, 1));
        OK(pf_buffer_free(buffer));
    }
    for (out = 1; out != 0;) {
        OK(pf_sender_counters(tx, &sent, &out));
    }
    CHECK(sent > 5);
    OK(pf_sender_free(tx));
}

/* Whether the host has the level. */
static int available(const struct kind *kind)
{
    pf_config config = config_of(kind);
    pf_sender *tx;
    pf_receiver *rx;
    int code = pf_channel_pair(&config, &tx, &rx);
    if (code != PF_OK) {
        printf("verbs: %s: left out: %s\n", kind->name, pf_last_error());
        return 0;
    }
    OK(pf_sender_free(tx));
    OK(pf_receiver_free(rx));
    return 1;
}

int main(int argc, char **argv)
{
    size_t at;
    if (argc == 4) {
        return the_receiver(&kinds[atoi(argv[1])], atoi(argv[2]), atoi(argv[3]));
    }
    for (at = 0; at < sizeof kinds / sizeof *kinds; at++) {
        const struct kind *kind = &kinds[at];
        int exec = at % 2 == 0, fds[2], steps[2];
        struct traces before;
        pid_t child;
        warm_up();
        if (!available(kind)) {
            continue;
        }
        before = traces_before();
        OK(pf_channel_sockets(fds));
        CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, steps) == 0);
        child = forks_alone();
        if (child == 0) {
            close(fds[0]);
            close(steps[0]);
            if (exec) {
                char which[16], socket[16], step[16];
                fcntl(fds[1], F_SETFD, 0);
                fcntl(steps[1], F_SETFD, 0);
                snprintf(which, sizeof which, "%d", (int)at);
                snprintf(socket, sizeof socket, "%d", fds[1]);
                snprintf(step, sizeof step, "%d", steps[1]);
                execl("/proc/self/exe", argv[0], which, socket, step, (char *)NULL);
                _exit(127);
            }
            _exit(the_receiver(kind, fds[1], steps[1]));
        }
        close(fds[1]);
        close(steps[1]);
        the_sender(kind, fds[0], steps[0]);
        close(steps[0]);
        ends_well(child);
        nothing_is_left_since(before);
        printf("verbs: %s: ok\n", kind->name);
    }
    return 0;
}
