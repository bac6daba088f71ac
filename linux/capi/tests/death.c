/*
 * Peers that are killed: the other side is told so, keeps what it has, and has back what it had lent.
 */
#include "check.h"

enum { LEN = 1000000 };

/* Starts a process that has one end of a channel. It stops where it has done what it should, and is killed there. */
static pid_t start(int fds[2], void (*does)(int fd))
{
    pid_t child;
    OK(pf_channel_sockets(fds));
    child = forks_alone();
    if (child == 0) {
        close(fds[0]);
        does(fds[1]);
        raise(SIGSTOP);
        _exit(1);
    }
    close(fds[1]);
    return child;
}

static void kill_it(pid_t child)
{
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void holds_two(int fd)
{
    pf_config config = small_config();
    pf_receiver *rx;
    pf_loan *loan;
    OK(pf_receiver_open_trusted(fd, &config, &rx));
    OK(pf_recv(rx, PF_RECV_READ, LONG_MS, &loan));
    OK(pf_recv(rx, PF_RECV_READ, LONG_MS, &loan));
}

static void a_killed_receiver(void)
{
    pf_config config = small_config();
    pf_sender *tx;
    pf_lent *lent;
    pf_buffer *buffer;
    void *data;
    size_t len;
    int fds[2], code;
    pid_t child = start(fds, holds_two);
    OK(pf_sender_open_trusted(fds[0], &config, &tx));
    OK(pf_sender_loan(tx, filled(tx, LEN, 1), 0, LONG_MS, &lent));
    OK(pf_sender_donate(tx, filled(tx, LEN, 2), 0));
    kill_it(child);
    /* It has given back all that it had. */
    OK(pf_lent_wait(lent, LONG_MS, &buffer));
    OK(pf_buffer_data(buffer, &data, &len));
    CHECK(len == LEN && all_are(data, len, 1));
    do {
        code = pf_sender_copy(tx, "x", 1, 0, LONG_MS);
    } while (code == PF_OK);
    ANSWERS(PF_EPEER_DEAD, code);
    /* What cannot be sent is a buffer still, with its bytes. */
    ANSWERS(PF_EPEER_DEAD, pf_sender_loan(tx, buffer, 0, LONG_MS, &lent));
    CHECK(lent == NULL);
    ANSWERS(PF_EPEER_DEAD, pf_sender_donate(tx, buffer, 0));
    ANSWERS(PF_EPEER_DEAD, pf_sender_donate_zero(tx, buffer, 0, &lent));
    ANSWERS(PF_EPEER_DEAD, pf_sender_share(tx, buffer, 0, &lent));
    ANSWERS(PF_EPEER_DEAD, pf_sender_copy_buffer(tx, buffer, 0, &lent));
    ANSWERS(PF_EPEER_DEAD, pf_sender_auto(tx, buffer, PF_ARRIVED_TOUCHED, 0, &lent));
    OK(pf_buffer_data(buffer, &data, &len));
    CHECK(len == LEN && all_are(data, len, 1));
    memset(data, 3, len);
    OK(pf_buffer_free(buffer));
    CHECK(pf_last_peer_fault() == PF_PEER_DEAD);
    ANSWERS(PF_EPEER_DEAD, pf_sender_buffer(tx, LEN, PF_WAIT, &buffer));
    OK(pf_sender_free(tx));
}

static void sends_three(int fd)
{
    pf_config config = small_config();
    pf_sender *tx;
    pf_lent *lent;
    OK(pf_sender_open_trusted(fd, &config, &tx));
    OK(pf_sender_loan(tx, filled(tx, LEN, 1), 1, LONG_MS, &lent));
    OK(pf_sender_donate(tx, filled(tx, LEN, 2), 2));
    OK(pf_sender_copy(tx, "x", 1, 3, LONG_MS));
}

static void a_killed_sender(void)
{
    pf_config config = small_config();
    pf_receiver *rx;
    pf_loan *loans[3], *loan;
    int fds[2], at;
    pid_t child = start(fds, sends_three);
    OK(pf_receiver_open_trusted(fds[0], &config, &rx));
    kill_it(child);
    /* What it had sent is received, and stays. */
    for (at = 0; at < 3; at++) {
        OK(pf_recv(rx, PF_RECV_READ, LONG_MS, &loans[at]));
    }
    ANSWERS(PF_EPEER_DEAD, pf_recv(rx, PF_RECV_READ, LONG_MS, &loan));
    ANSWERS(PF_EPEER_DEAD, pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &loan));
    OK(pf_receiver_free(rx));
    for (at = 0; at < 3; at++) {
        const void *data;
        void *mine;
        size_t len;
        OK(pf_loan_data(loans[at], &data, &len));
        CHECK(at == 2 ? len == 1 : len == LEN && all_are(data, len, at + 1));
        OK(pf_loan_data_mut(loans[at], &mine, &len));
        memset(mine, 9, len);
        OK(pf_loan_release(loans[at]));
    }
}

static void only_waits(int fd)
{
    pf_config config = small_config();
    pf_receiver *rx;
    OK(pf_receiver_open(fd, &config, &rx));
}

/* A receiver that takes nothing costs a sender that does not trust it the time that it gives. */
static void a_silent_receiver(void)
{
    pf_config config = small_config();
    pf_sender *tx;
    pf_buffer *buffer;
    pf_lent *lent;
    int fds[2], code, sent = 0;
    pid_t child;
    config.capacity = 4;
    child = start(fds, only_waits);
    OK(pf_sender_open(fds[0], &config, &tx));
    while ((code = pf_sender_copy(tx, "x", 1, 0, 1)) == PF_OK) {
        sent++;
    }
    ANSWERS(PF_ETIMEDOUT, code);
    CHECK(sent == 4);
    ANSWERS(PF_EWOULDBLOCK, pf_sender_copy(tx, "x", 1, 0, PF_NOWAIT));
    OK(pf_sender_buffer(tx, LEN, PF_NOWAIT, &buffer));
    ANSWERS(PF_ETIMEDOUT, pf_sender_loan(tx, buffer, 0, 1, &lent));
    ANSWERS(PF_ETIMEDOUT, pf_sender_room(tx, 1));
    ANSWERS(PF_EWOULDBLOCK, pf_sender_room(tx, PF_NOWAIT));
    /* The buffer is as it was. */
    OK(pf_buffer_free(buffer));
    OK(pf_sender_buffer(tx, (size_t)4 * (2 << 20), PF_NOWAIT, &buffer));
    OK(pf_buffer_free(buffer));
    kill_it(child);
    do {
        code = pf_sender_copy(tx, "x", 1, 0, 1);
    } while (code == PF_ETIMEDOUT);
    ANSWERS(PF_EPEER_DEAD, code);
    OK(pf_sender_free(tx));
}

int main(void)
{
    struct traces before;
    int round;
    warm_up();
    before = traces_before();
    for (round = 0; round < 10; round++) {
        a_killed_receiver();
        a_killed_sender();
        a_silent_receiver();
        nothing_is_left_since(before);
    }
    puts("death: ok");
    return 0;
}
