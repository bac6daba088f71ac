/*
 * Arguments that cannot be: every function with every kind of bad handle in every place, with NULL for every
 * answer, with numbers that are out of range. Each is PF_EUSAGE, says which argument, and leaves all else as it
 * was.
 *
 * Takes the path of abi.txt: every function that is listed there is tested here.
 */
#include "check.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum kind { SENDER, RECEIVER, LISTENER, BUFFER, LENT, LOAN, KINDS };

/* Two live handles of each kind. */
static pf_sender *tx, *other_tx;
static pf_receiver *rx, *other_rx;
static pf_listener *listener, *other_listener;
static pf_buffer *buffer, *other_buffer;
static pf_lent *lent, *other_lent;
static pf_loan *loan, *other_loan;
static void *live[KINDS][2];
static void *freed[KINDS];

/* Places for answers that are never looked at. */
static pf_sender *any_tx;
static pf_receiver *any_rx;
static pf_listener *any_listener;
static pf_buffer *any_buffer;
static pf_lent *any_lent;
static pf_loan *any_loan;
static void *any_data;
static const void *any_read_only;
static size_t any_size;
static int any_int;
static int32_t any_pid;
static uint32_t any_uid, any_gid;
static uint64_t any_count, any_other_count;

/* A call with one handle to be chosen. */
struct probe {
    const char *function;
    const char *argument;
    enum kind kind;
    int (*call)(void *handle);
};

#define PROBE(number, expression)     \
    static int probe_##number(void *h) \
    {                                 \
        return expression;            \
    }
PROBE(1, pf_sender_free((pf_sender *)h))
PROBE(2, pf_sender_level((pf_sender *)h, &any_int))
PROBE(3, pf_sender_peer((pf_sender *)h, &any_pid, &any_uid, &any_gid))
PROBE(4, pf_sender_counters((pf_sender *)h, &any_count, &any_other_count))
PROBE(5, pf_sender_buffer((pf_sender *)h, 1, PF_NOWAIT, &any_buffer))
PROBE(6, pf_sender_loan((pf_sender *)h, buffer, 0, PF_NOWAIT, &any_lent))
PROBE(7, pf_sender_loan(tx, (pf_buffer *)h, 0, PF_NOWAIT, &any_lent))
PROBE(8, pf_sender_donate((pf_sender *)h, buffer, 0))
PROBE(9, pf_sender_donate(tx, (pf_buffer *)h, 0))
PROBE(10, pf_sender_donate_zero((pf_sender *)h, buffer, 0, &any_lent))
PROBE(11, pf_sender_donate_zero(tx, (pf_buffer *)h, 0, &any_lent))
PROBE(12, pf_sender_share((pf_sender *)h, buffer, 0, &any_lent))
PROBE(13, pf_sender_share(tx, (pf_buffer *)h, 0, &any_lent))
PROBE(14, pf_sender_copy((pf_sender *)h, "x", 1, 0, PF_NOWAIT))
PROBE(15, pf_sender_copy_buffer((pf_sender *)h, buffer, 0, &any_lent))
PROBE(16, pf_sender_copy_buffer(tx, (pf_buffer *)h, 0, &any_lent))
PROBE(17, pf_sender_auto((pf_sender *)h, buffer, PF_ARRIVED_TOUCHED, 0, &any_lent))
PROBE(18, pf_sender_auto(tx, (pf_buffer *)h, PF_ARRIVED_TOUCHED, 0, &any_lent))
PROBE(19, pf_sender_auto_give((pf_sender *)h, buffer, PF_ARRIVED_TOUCHED, 0, &any_int))
PROBE(20, pf_sender_auto_give(tx, (pf_buffer *)h, PF_ARRIVED_TOUCHED, 0, &any_int))
PROBE(21, pf_sender_resend((pf_sender *)h, lent, 0, &any_lent))
PROBE(22, pf_sender_resend(tx, (pf_lent *)h, 0, &any_lent))
PROBE(23, pf_sender_loan_again((pf_sender *)h, lent, 0, &any_lent))
PROBE(24, pf_sender_loan_again(tx, (pf_lent *)h, 0, &any_lent))
PROBE(25, pf_sender_forward((pf_sender *)h, loan))
PROBE(26, pf_sender_forward(tx, (pf_loan *)h))
PROBE(27, pf_receiver_free((pf_receiver *)h))
PROBE(28, pf_receiver_level((pf_receiver *)h, &any_int))
PROBE(29, pf_receiver_peer((pf_receiver *)h, &any_pid, &any_uid, &any_gid))
PROBE(30, pf_receiver_counters((pf_receiver *)h, &any_count, &any_other_count))
PROBE(31, pf_recv((pf_receiver *)h, PF_RECV_READ, PF_NOWAIT, &any_loan))
PROBE(32, pf_listener_accept((pf_listener *)h, PF_NOWAIT, &any_int))
PROBE(33, pf_listener_free((pf_listener *)h))
PROBE(34, pf_buffer_data((pf_buffer *)h, &any_data, &any_size))
PROBE(35, pf_buffer_capacity((pf_buffer *)h, &any_size))
PROBE(36, pf_buffer_set_len((pf_buffer *)h, 1))
PROBE(37, pf_buffer_write((pf_buffer *)h, "x", 1))
PROBE(38, pf_buffer_free((pf_buffer *)h))
PROBE(39, pf_lent_wait((pf_lent *)h, PF_NOWAIT, &any_buffer))
PROBE(40, pf_lent_is_home((pf_lent *)h, &any_int))
PROBE(41, pf_lent_verb((pf_lent *)h, &any_int))
PROBE(42, pf_lent_data((pf_lent *)h, &any_read_only, &any_size))
PROBE(43, pf_lent_data_mut((pf_lent *)h, &any_data, &any_size))
PROBE(44, pf_lent_free((pf_lent *)h))
PROBE(45, pf_loan_data((pf_loan *)h, &any_read_only, &any_size))
PROBE(46, pf_loan_data_mut((pf_loan *)h, &any_data, &any_size))
PROBE(47, pf_loan_transfer((pf_loan *)h))
PROBE(48, pf_loan_tag((pf_loan *)h, &any_count))
PROBE(49, pf_loan_sequence((pf_loan *)h, &any_count))
PROBE(50, pf_loan_verb((pf_loan *)h, &any_int))
PROBE(51, pf_loan_level((pf_loan *)h, &any_int))
PROBE(53, pf_sender_room((pf_sender *)h, PF_NOWAIT))
PROBE(52, pf_loan_release((pf_loan *)h))

static const struct probe probes[] = {
    { "pf_sender_free", "sender", SENDER, probe_1 },
    { "pf_sender_level", "sender", SENDER, probe_2 },
    { "pf_sender_peer", "sender", SENDER, probe_3 },
    { "pf_sender_counters", "sender", SENDER, probe_4 },
    { "pf_sender_buffer", "sender", SENDER, probe_5 },
    { "pf_sender_loan", "sender", SENDER, probe_6 },
    { "pf_sender_loan", "buffer", BUFFER, probe_7 },
    { "pf_sender_donate", "sender", SENDER, probe_8 },
    { "pf_sender_donate", "buffer", BUFFER, probe_9 },
    { "pf_sender_donate_zero", "sender", SENDER, probe_10 },
    { "pf_sender_donate_zero", "buffer", BUFFER, probe_11 },
    { "pf_sender_share", "sender", SENDER, probe_12 },
    { "pf_sender_share", "buffer", BUFFER, probe_13 },
    { "pf_sender_copy", "sender", SENDER, probe_14 },
    { "pf_sender_copy_buffer", "sender", SENDER, probe_15 },
    { "pf_sender_copy_buffer", "buffer", BUFFER, probe_16 },
    { "pf_sender_auto", "sender", SENDER, probe_17 },
    { "pf_sender_auto", "buffer", BUFFER, probe_18 },
    { "pf_sender_auto_give", "sender", SENDER, probe_19 },
    { "pf_sender_auto_give", "buffer", BUFFER, probe_20 },
    { "pf_sender_resend", "sender", SENDER, probe_21 },
    { "pf_sender_resend", "lent", LENT, probe_22 },
    { "pf_sender_loan_again", "sender", SENDER, probe_23 },
    { "pf_sender_loan_again", "lent", LENT, probe_24 },
    { "pf_sender_forward", "sender", SENDER, probe_25 },
    { "pf_sender_forward", "loan", LOAN, probe_26 },
    { "pf_sender_room", "sender", SENDER, probe_53 },
    { "pf_receiver_free", "receiver", RECEIVER, probe_27 },
    { "pf_receiver_level", "receiver", RECEIVER, probe_28 },
    { "pf_receiver_peer", "receiver", RECEIVER, probe_29 },
    { "pf_receiver_counters", "receiver", RECEIVER, probe_30 },
    { "pf_recv", "receiver", RECEIVER, probe_31 },
    { "pf_listener_accept", "listener", LISTENER, probe_32 },
    { "pf_listener_free", "listener", LISTENER, probe_33 },
    { "pf_buffer_data", "buffer", BUFFER, probe_34 },
    { "pf_buffer_capacity", "buffer", BUFFER, probe_35 },
    { "pf_buffer_set_len", "buffer", BUFFER, probe_36 },
    { "pf_buffer_write", "buffer", BUFFER, probe_37 },
    { "pf_buffer_free", "buffer", BUFFER, probe_38 },
    { "pf_lent_wait", "lent", LENT, probe_39 },
    { "pf_lent_is_home", "lent", LENT, probe_40 },
    { "pf_lent_verb", "lent", LENT, probe_41 },
    { "pf_lent_data", "lent", LENT, probe_42 },
    { "pf_lent_data_mut", "lent", LENT, probe_43 },
    { "pf_lent_free", "lent", LENT, probe_44 },
    { "pf_loan_data", "loan", LOAN, probe_45 },
    { "pf_loan_data_mut", "loan", LOAN, probe_46 },
    { "pf_loan_transfer", "loan", LOAN, probe_47 },
    { "pf_loan_tag", "loan", LOAN, probe_48 },
    { "pf_loan_sequence", "loan", LOAN, probe_49 },
    { "pf_loan_verb", "loan", LOAN, probe_50 },
    { "pf_loan_level", "loan", LOAN, probe_51 },
    { "pf_loan_release", "loan", LOAN, probe_52 },
};

enum { PROBES = sizeof probes / sizeof *probes };

/* What has no handle to get wrong, or is tested apart. */
static const char *const others[] = {
    "pf_strerror",          "pf_blame",           "pf_last_error",      "pf_last_peer_fault", "pf_last_errno",
    "pf_config_init",       "pf_version",         "pf_open_handles",    "pf_channel_pair",    "pf_channel_sockets",
    "pf_channel_connect",   "pf_listener_bind",   "pf_sender_open",     "pf_sender_open_trusted",
    "pf_receiver_open",     "pf_receiver_open_trusted", "pf_fd",
};

static void refused(const char *what, const char *argument, int code, size_t handles)
{
    if (code != PF_EUSAGE || pf_open_handles() != handles ||
        (argument != NULL && strstr(pf_last_error(), argument) == NULL)) {
        fprintf(stderr, "%s: answers %d (%s), handles %zu before and %zu now; expected PF_EUSAGE about `%s`\n",
                what, code, pf_last_error(), handles, pf_open_handles(), argument == NULL ? "" : argument);
        abort();
    }
}

static void bad_handles(void)
{
    int local = 0;
    size_t at, handles = pf_open_handles(), tried = 0;
    for (at = 0; at < PROBES; at++) {
        const struct probe *probe = &probes[at];
        uintptr_t good = (uintptr_t)live[probe->kind][0];
        void *bad[] = { NULL,
                        freed[probe->kind],
                        &local,
                        (void *)(uintptr_t)1,
                        (void *)UINTPTR_MAX,
                        (void *)(good ^ ((uintptr_t)1 << 19)),    /* another index */
                        (void *)(good ^ ((uintptr_t)1 << 20)),    /* another generation */
                        (void *)(good ^ ((uintptr_t)8 << 48)),    /* a kind that is none */
                        (void *)(good ^ ((uintptr_t)1 << 63)) };  /* another mark */
        size_t which;
        for (which = 0; which < sizeof bad / sizeof *bad; which++, tried++) {
            refused(probe->function, probe->argument, probe->call(bad[which]), handles);
        }
        for (which = 0; which < KINDS; which++) {
            if (which != (size_t)probe->kind) {
                refused(probe->function, "expected a pf_", probe->call(live[which][0]), handles);
                tried++;
            }
        }
    }
    printf("misuse: %zu calls with bad handles refused\n", tried);
}

static void bad_ends(void)
{
    size_t at, handles = pf_open_handles();
    int local = 0;
    void *bad[] = { NULL, &local, live[BUFFER][0], live[LENT][0], live[LOAN][0], freed[SENDER], freed[RECEIVER],
                    freed[LISTENER] };
    for (at = 0; at < sizeof bad / sizeof *bad; at++) {
        refused("pf_fd", "handle", pf_fd(bad[at], &any_int), handles);
        CHECK(any_int == -1);
    }
    for (at = 0; at < 3; at++) {
        OK(pf_fd(live[at][0], &any_int));
        CHECK(any_int >= 0);
        refused("pf_fd", "fd", pf_fd(live[at][0], NULL), handles);
    }
}

#define REFUSED(argument, call) refused(#call, argument, (call), handles)

static void no_place_for_answers(void)
{
    size_t handles = pf_open_handles();
    pf_config config;
    REFUSED("config", pf_config_init(NULL, sizeof config));
    REFUSED("sender", pf_channel_pair(NULL, NULL, &any_rx));
    REFUSED("receiver", pf_channel_pair(NULL, &any_tx, NULL));
    REFUSED("fds", pf_channel_sockets(NULL));
    REFUSED("path", pf_channel_connect(NULL, &any_int));
    REFUSED("fd", pf_channel_connect("x", NULL));
    REFUSED("path", pf_listener_bind(NULL, &any_listener));
    REFUSED("listener", pf_listener_bind("x", NULL));
    REFUSED("fd", pf_listener_accept(listener, PF_NOWAIT, NULL));
    REFUSED("sender", pf_sender_open(0, NULL, NULL));
    REFUSED("sender", pf_sender_open_trusted(0, NULL, NULL));
    REFUSED("receiver", pf_receiver_open(0, NULL, NULL));
    REFUSED("receiver", pf_receiver_open_trusted(0, NULL, NULL));
    REFUSED("level", pf_sender_level(tx, NULL));
    REFUSED("pid", pf_sender_peer(tx, NULL, &any_uid, &any_gid));
    REFUSED("uid", pf_sender_peer(tx, &any_pid, NULL, &any_gid));
    REFUSED("gid", pf_sender_peer(tx, &any_pid, &any_uid, NULL));
    REFUSED("sent", pf_sender_counters(tx, NULL, &any_count));
    REFUSED("out", pf_sender_counters(tx, &any_count, NULL));
    REFUSED("buffer", pf_sender_buffer(tx, 1, PF_NOWAIT, NULL));
    REFUSED("lent", pf_sender_loan(tx, buffer, 0, PF_NOWAIT, NULL));
    REFUSED("lent", pf_sender_donate_zero(tx, buffer, 0, NULL));
    REFUSED("lent", pf_sender_share(tx, buffer, 0, NULL));
    REFUSED("data", pf_sender_copy(tx, NULL, 1, 0, PF_NOWAIT));
    REFUSED("data", pf_sender_copy(tx, NULL, 0, 0, PF_NOWAIT));
    REFUSED("lent", pf_sender_copy_buffer(tx, buffer, 0, NULL));
    REFUSED("lent", pf_sender_auto(tx, buffer, PF_ARRIVED_TOUCHED, 0, NULL));
    REFUSED("verb", pf_sender_auto_give(tx, buffer, PF_ARRIVED_TOUCHED, 0, NULL));
    REFUSED("again", pf_sender_resend(tx, lent, 0, NULL));
    REFUSED("again", pf_sender_loan_again(tx, lent, 0, NULL));
    REFUSED("level", pf_receiver_level(rx, NULL));
    REFUSED("pid", pf_receiver_peer(rx, NULL, &any_uid, &any_gid));
    REFUSED("uid", pf_receiver_peer(rx, &any_pid, NULL, &any_gid));
    REFUSED("gid", pf_receiver_peer(rx, &any_pid, &any_uid, NULL));
    REFUSED("received", pf_receiver_counters(rx, NULL, &any_count));
    REFUSED("held", pf_receiver_counters(rx, &any_count, NULL));
    REFUSED("loan", pf_recv(rx, PF_RECV_READ, PF_NOWAIT, NULL));
    REFUSED("data", pf_buffer_data(buffer, NULL, &any_size));
    REFUSED("len", pf_buffer_data(buffer, &any_data, NULL));
    REFUSED("capacity", pf_buffer_capacity(buffer, NULL));
    REFUSED("data", pf_buffer_write(buffer, NULL, 1));
    REFUSED("buffer", pf_lent_wait(lent, PF_NOWAIT, NULL));
    REFUSED("home", pf_lent_is_home(lent, NULL));
    REFUSED("verb", pf_lent_verb(lent, NULL));
    REFUSED("data", pf_lent_data(lent, NULL, &any_size));
    REFUSED("len", pf_lent_data(lent, &any_read_only, NULL));
    REFUSED("data", pf_lent_data_mut(lent, NULL, &any_size));
    REFUSED("len", pf_lent_data_mut(lent, &any_data, NULL));
    REFUSED("data", pf_loan_data(loan, NULL, &any_size));
    REFUSED("len", pf_loan_data(loan, &any_read_only, NULL));
    REFUSED("data", pf_loan_data_mut(loan, NULL, &any_size));
    REFUSED("len", pf_loan_data_mut(loan, &any_data, NULL));
    REFUSED("tag", pf_loan_tag(loan, NULL));
    REFUSED("sequence", pf_loan_sequence(loan, NULL));
    REFUSED("verb", pf_loan_verb(loan, NULL));
    REFUSED("level", pf_loan_level(loan, NULL));
}

static void bad_numbers(void)
{
    size_t handles = pf_open_handles();
    void *own;
    REFUSED("timeout_ms", pf_sender_buffer(tx, 1, -2, &any_buffer));
    REFUSED("timeout_ms", pf_sender_loan(tx, buffer, 0, INT_MIN, &any_lent));
    REFUSED("timeout_ms", pf_sender_room(tx, -2));
    REFUSED("timeout_ms", pf_sender_copy(tx, "x", 1, 0, -2));
    REFUSED("timeout_ms", pf_lent_wait(lent, -2, &any_buffer));
    REFUSED("timeout_ms", pf_listener_accept(listener, -2, &any_int));
    REFUSED("timeout_ms", pf_recv(rx, PF_RECV_READ, -2, &any_loan));
    REFUSED("flags", pf_recv(rx, 8, PF_NOWAIT, &any_loan));
    REFUSED("flags", pf_recv(rx, UINT_MAX, PF_NOWAIT, &any_loan));
    REFUSED("flags", pf_recv(rx, PF_RECV_COPY_ON_WRITE | PF_RECV_TRANSFER, PF_NOWAIT, &any_loan));
    REFUSED("arrived", pf_sender_auto(tx, buffer, 0, 0, &any_lent));
    REFUSED("arrived", pf_sender_auto_give(tx, buffer, 3, 0, &any_int));
    REFUSED("at least one byte", pf_sender_buffer(tx, 0, PF_NOWAIT, &any_buffer));
    REFUSED("does not fit", pf_sender_buffer(tx, SIZE_MAX, PF_NOWAIT, &any_buffer));
    REFUSED("does not fit", pf_sender_buffer(tx, (size_t)1 << 40, PF_WAIT, &any_buffer));
    REFUSED("more than a process", pf_sender_copy(tx, "x", SIZE_MAX, 0, PF_NOWAIT));
    REFUSED("more than a process", pf_buffer_write(buffer, "x", SIZE_MAX));
    REFUSED("at least one byte", pf_buffer_set_len(buffer, 0));
    REFUSED("does not fit", pf_buffer_set_len(buffer, SIZE_MAX));
    REFUSED("len", pf_buffer_write(buffer, "x", 0));
    OK(pf_buffer_data(buffer, &own, &any_size));
    REFUSED("the buffer itself", pf_buffer_write(buffer, (char *)own + 1, 1));
    REFUSED("another channel", pf_sender_loan(other_tx, buffer, 0, PF_WAIT, &any_lent));
    REFUSED("another channel", pf_sender_donate(other_tx, buffer, 0));
    REFUSED("another channel", pf_sender_auto(other_tx, buffer, PF_ARRIVED_TOUCHED, 0, &any_lent));
    REFUSED("another channel", pf_sender_loan_again(other_tx, lent, 0, &any_lent));
}

static void bad_configurations(void)
{
    size_t handles = pf_open_handles(), at;
    struct {
        pf_config config;
        char more[64];
    } longer;
    pf_config config;
    /* Bytes of the structure that are set to a value that cannot be, and what the error speaks of. */
    static const struct {
        size_t offset;
        size_t len;
        uint64_t value;
        const char *about;
    } bad[] = {
        { offsetof(pf_config, size), 8, 0, "size" },
        { offsetof(pf_config, size), 8, sizeof(pf_config) - 1, "size" },
        { offsetof(pf_config, size), 8, UINT64_MAX, "size" },
        { offsetof(pf_config, slots), 4, 4097, "slots" },
        { offsetof(pf_config, capacity), 4, 3, "capacity" },
        { offsetof(pf_config, capacity), 4, 8192, "capacity" },
        { offsetof(pf_config, slot_bytes), 8, UINT64_MAX, "slot_bytes" },
        { offsetof(pf_config, budget), 8, 1, "budget" },
        { offsetof(pf_config, inline_bytes), 4, 65, "inline_bytes" },
        { offsetof(pf_config, level), 4, 6, "level" },
        { offsetof(pf_config, level), 4, PF_LEVEL_TYPED, "PF_LEVEL_TYPED" },
        { offsetof(pf_config, flags), 4, 16, "flags" },
        { offsetof(pf_config, flags), 4, PF_CONFIG_NO_SPIN | PF_CONFIG_NO_SLEEP, "PF_CONFIG_NO_SPIN" },
        { offsetof(pf_config, reserved), 4, 1, "reserved" },
    };
    REFUSED("size", pf_config_init(&config, 0));
    REFUSED("size", pf_config_init(&config, sizeof config - 1));
    REFUSED("size", pf_config_init(&config, SIZE_MAX));
    for (at = 0; at < sizeof bad / sizeof *bad; at++) {
        int fds[2];
        config = small_config();
        /* Both processors that the library is for keep the low bytes first. */
        memcpy((char *)&config + bad[at].offset, &bad[at].value, bad[at].len);
        refused("pf_channel_pair", bad[at].about, pf_channel_pair(&config, &any_tx, &any_rx), handles);
        CHECK(any_tx == NULL && any_rx == NULL);
        /* Over a socket, which stays the caller's. */
        OK(pf_channel_sockets(fds));
        refused("pf_sender_open", bad[at].about, pf_sender_open(fds[0], &config, &any_tx), handles);
        CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
    }
    OK(pf_config_init(&longer.config, sizeof longer));
    CHECK(longer.config.size == sizeof longer);
    longer.more[63] = 1;
    REFUSED("does not know", pf_channel_pair(&longer.config, &any_tx, &any_rx));
    longer.more[63] = 0;
    longer.config.slots = 1;
    longer.config.slot_bytes = 1;
    OK(pf_channel_pair(&longer.config, &any_tx, &any_rx));
    OK(pf_sender_free(any_tx));
    OK(pf_receiver_free(any_rx));
}

static void bad_descriptors(void)
{
    size_t handles = pf_open_handles(), at;
    int pipes[2], stream[2];
    int file = open("/proc/self/exe", O_RDONLY), closed = dup(file), udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(pipe(pipes) == 0 && socketpair(AF_UNIX, SOCK_STREAM, 0, stream) == 0 && file >= 0 && close(closed) == 0);
    {
        int bad[] = { -1, INT_MIN, INT_MAX, closed, file, pipes[0], stream[0], udp };
        for (at = 0; at < sizeof bad / sizeof *bad; at++) {
            int before = fcntl(bad[at], F_GETFD);
            refused("pf_sender_open", NULL, pf_sender_open(bad[at], NULL, &any_tx), handles);
            refused("pf_sender_open_trusted", NULL, pf_sender_open_trusted(bad[at], NULL, &any_tx), handles);
            refused("pf_receiver_open", NULL, pf_receiver_open(bad[at], NULL, &any_rx), handles);
            refused("pf_receiver_open_trusted", NULL, pf_receiver_open_trusted(bad[at], NULL, &any_rx), handles);
            /* It is as open as it was. */
            CHECK(fcntl(bad[at], F_GETFD) == before);
        }
    }
    close(pipes[0]), close(pipes[1]), close(stream[0]), close(stream[1]), close(file), close(udp);
}

static void bad_paths(void)
{
    char path[300];
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    ANSWERS(PF_EHOST, pf_channel_connect(path, &any_int));
    ANSWERS(PF_EHOST, pf_channel_connect("/nowhere/at/all", &any_int));
    CHECK(pf_last_errno() == ENOENT && any_int == -1);
    ANSWERS(PF_EHOST, pf_listener_bind("/nowhere/at/all", &any_listener));
    CHECK(any_listener == NULL && pf_blame(PF_EHOST) == PF_BLAME_HOST);
    ANSWERS(PF_EHOST, pf_listener_bind(path, &any_listener));
    ANSWERS(PF_EHOST, pf_listener_bind("", &any_listener));
}

/* A peer that never answers, one that is gone, and one that does not fit. */
static void bad_peers(void)
{
    pf_config config = small_config();
    int fds[2];
    config.handshake_ms = 20;
    OK(pf_channel_sockets(fds));
    ANSWERS(PF_ETIMEDOUT, pf_receiver_open(fds[0], &config, &any_rx));
    CHECK(close(fds[0]) == 0);
    ANSWERS(PF_EPEER_DEAD, pf_sender_open(fds[1], &config, &any_tx));
    CHECK(pf_last_peer_fault() == PF_PEER_DEAD && pf_last_errno() == 0);
    CHECK(close(fds[1]) == 0);
    OK(pf_channel_sockets(fds));
    CHECK(close(fds[0]) == 0);
    ANSWERS(PF_EPEER_DEAD, pf_receiver_open_trusted(fds[1], &config, &any_rx));
    CHECK(close(fds[1]) == 0);

    config.handshake_ms = LONG_MS;
    OK(pf_channel_sockets(fds));
    {
        pid_t child = forks_alone();
        if (child == 0) {
            /* It wants what the parent does not offer. */
            config.level = PF_LEVEL_SEALED;
            config.flags = PF_CONFIG_REQUIRE_LEVEL;
            close(fds[0]);
            ANSWERS(PF_EPEER_UNFIT, pf_receiver_open(fds[1], &config, &any_rx));
            CHECK(pf_last_peer_fault() == PF_PEER_UNFIT);
            _exit(0);
        }
        close(fds[1]);
        ANSWERS(PF_EPEER_REFUSED, pf_sender_open(fds[0], &config, &any_tx));
        CHECK(pf_last_peer_fault() == PF_PEER_REFUSED && strstr(pf_last_error(), "sealed") != NULL);
        CHECK(close(fds[0]) == 0);
        ends_well(child);
    }
}

/* A message that this side cannot take stays the next one, however it is asked for. */
static void too_little(void)
{
    static const unsigned how[] = { PF_RECV_READ, PF_RECV_COPY_ON_WRITE, PF_RECV_TRANSFER };
    static char bytes[3000000];
    pf_config config = small_config();
    pf_sender *sender;
    pf_receiver *receiver;
    pf_loan *first;
    pf_lent *token;
    size_t at;
    uint64_t tag;
    /* The pool, the ring, and one copy of three million bytes; or one sealed message and no copy of it. */
    config.budget = ((uint64_t)config.slots * config.slot_bytes) + (2 << 20) + (5 << 20);
    OK(pf_channel_pair(&config, &sender, &receiver));
    for (at = 0; at < 3; at++) {
        OK(pf_sender_copy(sender, bytes, sizeof bytes, 1, PF_WAIT));
        OK(pf_sender_copy(sender, bytes, sizeof bytes, 2, PF_WAIT));
        OK(pf_recv(receiver, PF_RECV_READ, PF_WAIT, &first));
        ANSWERS(PF_EBUDGET, pf_recv(receiver, how[at], PF_WAIT, &any_loan));
        ANSWERS(PF_EBUDGET, pf_recv(receiver, how[at], PF_NOWAIT, &any_loan));
        CHECK(any_loan == NULL && pf_blame(PF_EBUDGET) == PF_BLAME_BUDGET);
        OK(pf_loan_release(first));
        OK(pf_recv(receiver, how[at], PF_WAIT, &any_loan));
        OK(pf_loan_tag(any_loan, &tag));
        CHECK(tag == 2);
        OK(pf_loan_release(any_loan));
    }
    OK(pf_sender_free(sender));
    OK(pf_receiver_free(receiver));
    config.level = PF_LEVEL_SEALED;
    OK(pf_channel_pair(&config, &sender, &receiver));
    OK(pf_sender_loan(sender, filled(sender, sizeof bytes, 1), 3, PF_WAIT, &token));
    ANSWERS(PF_EBUDGET, pf_recv(receiver, PF_RECV_COPY_ON_WRITE, PF_WAIT, &any_loan));
    OK(pf_recv(receiver, PF_RECV_READ, PF_NOWAIT, &any_loan));
    OK(pf_loan_tag(any_loan, &tag));
    CHECK(tag == 3);
    ANSWERS(PF_EBUDGET, pf_loan_data_mut(any_loan, &any_data, &any_size));
    OK(pf_loan_data(any_loan, &any_read_only, &any_size));
    CHECK(all_are(any_read_only, sizeof bytes, 1));
    OK(pf_loan_release(any_loan));
    OK(pf_lent_free(token));
    OK(pf_sender_free(sender));
    OK(pf_receiver_free(receiver));
}

/* A process that can have no more descriptors is told so, and loses nothing. */
static void no_descriptors(void)
{
    pf_config config = small_config();
    struct rlimit limit, none;
    int fds[2];
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    OK(pf_channel_sockets(fds));
    none = limit;
    none.rlim_cur = (rlim_t)fds[1] + 1;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    ANSWERS(PF_EHOST, pf_channel_pair(&config, &any_tx, &any_rx));
    CHECK(pf_last_errno() == EMFILE && any_tx == NULL && any_rx == NULL);
    ANSWERS(PF_EHOST, pf_sender_open(fds[0], &config, &any_tx));
    CHECK(pf_last_errno() == EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    CHECK(close(fds[0]) == 0 && close(fds[1]) == 0);
}

/* Every function of the list is one of those above. */
static void all_functions(const char *path)
{
    FILE *list = fopen(path, "r");
    char line[200], name[100];
    size_t found = 0;
    CHECK(list != NULL);
    while (fgets(line, sizeof line, list) != NULL) {
        size_t at;
        int tested = 0;
        if (sscanf(line, "function %*s %99s", name) != 1) {
            continue;
        }
        for (at = 0; at < PROBES; at++) {
            tested |= strcmp(probes[at].function, name) == 0;
        }
        for (at = 0; at < sizeof others / sizeof *others; at++) {
            tested |= strcmp(others[at], name) == 0;
        }
        if (!tested) {
            fprintf(stderr, "%s is not tested with bad arguments\n", name);
            abort();
        }
        found++;
    }
    fclose(list);
    CHECK(found > 50);
}

static void freed_handles(void)
{
    pf_config config = small_config();
    pf_sender *sender;
    pf_receiver *receiver;
    pf_buffer *second;
    char path[64];
    OK(pf_channel_pair(&config, &sender, &receiver));
    freed[BUFFER] = filled(sender, 1, 1);
    second = filled(sender, 1, 1);
    OK(pf_sender_loan(sender, second, 0, PF_WAIT, (pf_lent **)&any_lent));
    freed[LENT] = any_lent;
    OK(pf_recv(receiver, PF_RECV_READ, PF_WAIT, &any_loan));
    freed[LOAN] = any_loan;
    snprintf(path, sizeof path, "/tmp/pageferry-misuse-%d-freed", (int)getpid());
    OK(pf_listener_bind(path, &any_listener));
    freed[LISTENER] = any_listener;
    freed[SENDER] = sender;
    freed[RECEIVER] = receiver;
    /* What was used up is as good as freed. */
    ANSWERS(PF_EUSAGE, pf_buffer_free(second));
    OK(pf_buffer_free((pf_buffer *)freed[BUFFER]));
    OK(pf_lent_free(any_lent));
    OK(pf_loan_release(any_loan));
    OK(pf_listener_free(any_listener));
    OK(pf_sender_free(sender));
    OK(pf_receiver_free(receiver));
    /* Their numbers are not those of handles that come later. */
}

static void live_handles(void)
{
    pf_config config = small_config();
    char path[64];
    config.slots = 8;
    OK(pf_channel_pair(&config, &tx, &rx));
    OK(pf_channel_pair(&config, &other_tx, &other_rx));
    OK(pf_sender_loan(tx, filled(tx, 10, 1), 0, PF_WAIT, &lent));
    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    OK(pf_sender_loan(tx, filled(tx, 10, 1), 0, PF_WAIT, &other_lent));
    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &other_loan));
    buffer = filled(tx, 10, 1);
    other_buffer = filled(tx, 10, 1);
    snprintf(path, sizeof path, "/tmp/pageferry-misuse-%d-one", (int)getpid());
    OK(pf_listener_bind(path, &listener));
    snprintf(path, sizeof path, "/tmp/pageferry-misuse-%d-two", (int)getpid());
    OK(pf_listener_bind(path, &other_listener));
    live[SENDER][0] = tx, live[SENDER][1] = other_tx;
    live[RECEIVER][0] = rx, live[RECEIVER][1] = other_rx;
    live[LISTENER][0] = listener, live[LISTENER][1] = other_listener;
    live[BUFFER][0] = buffer, live[BUFFER][1] = other_buffer;
    live[LENT][0] = lent, live[LENT][1] = other_lent;
    live[LOAN][0] = loan, live[LOAN][1] = other_loan;
}

static void everything_works_still(void)
{
    size_t at;
    OK(pf_loan_release(loan));
    OK(pf_loan_release(other_loan));
    OK(pf_lent_wait(lent, PF_WAIT, &any_buffer));
    OK(pf_buffer_free(any_buffer));
    OK(pf_lent_free(other_lent));
    OK(pf_sender_loan(tx, buffer, 5, PF_WAIT, &lent));
    /* A message that nobody has received, and a token of it, outlive the ends. */
    OK(pf_buffer_free(other_buffer));
    OK(pf_recv(rx, PF_RECV_TRANSFER, PF_WAIT, &loan));
    OK(pf_listener_free(listener));
    OK(pf_listener_free(other_listener));
    OK(pf_receiver_free(rx));
    OK(pf_sender_free(tx));
    OK(pf_sender_free(other_tx));
    OK(pf_receiver_free(other_rx));
    OK(pf_lent_free(lent));
    OK(pf_loan_release(loan));
    for (at = 0; at < KINDS; at++) {
        refused("a second free", "freed", (at == SENDER     ? pf_sender_free((pf_sender *)live[at][0])
                                           : at == RECEIVER ? pf_receiver_free((pf_receiver *)live[at][0])
                                           : at == LISTENER ? pf_listener_free((pf_listener *)live[at][0])
                                           : at == BUFFER   ? pf_buffer_free((pf_buffer *)live[at][0])
                                           : at == LENT     ? pf_lent_free((pf_lent *)live[at][0])
                                                            : pf_loan_release((pf_loan *)live[at][0])),
                pf_open_handles());
    }
}

int main(int argc, char **argv)
{
    struct traces before;
    CHECK(argc == 2);
    all_functions(argv[1]);
    warm_up();
    before = traces_before();
    freed_handles();
    live_handles();
    bad_handles();
    bad_ends();
    no_place_for_answers();
    bad_numbers();
    bad_configurations();
    bad_descriptors();
    bad_paths();
    bad_peers();
    too_little();
    no_descriptors();
    everything_works_still();
    nothing_is_left_since(before);
    puts("misuse: ok");
    return 0;
}
