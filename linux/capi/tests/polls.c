/*
 * One thread with two channels and a listener in one poll loop. Nothing in it ever waits but poll().
 */
#include "check.h"

#include <poll.h>

enum { LEN = 3000000, MESSAGES = 200 };

/* Connects, and sends back what it gets. */
static void the_peer(const char *path)
{
    pf_config config = small_config();
    pf_receiver *rx;
    pf_sender *tx;
    pf_loan *loan;
    int fd, code;
    OK(pf_channel_connect(path, &fd));
    OK(pf_receiver_open_trusted(fd, &config, &rx));
    OK(pf_channel_connect(path, &fd));
    OK(pf_sender_open_trusted(fd, &config, &tx));
    while ((code = pf_recv(rx, PF_RECV_READ, LONG_MS, &loan)) == PF_OK) {
        OK(pf_sender_forward(tx, loan));
        OK(pf_loan_release(loan));
    }
    ANSWERS(PF_EPEER_DEAD, code);
    OK(pf_receiver_free(rx));
    OK(pf_sender_free(tx));
}

static int readable(const void *handle)
{
    struct pollfd polled = { -1, POLLIN, 0 };
    OK(pf_fd(handle, &polled.fd));
    return poll(&polled, 1, 0) == 1;
}

static int accepted(pf_listener *listener)
{
    struct pollfd polled = { -1, POLLIN, 0 };
    int fd, code;
    OK(pf_fd(listener, &polled.fd));
    while ((code = pf_listener_accept(listener, PF_NOWAIT, &fd)) == PF_EWOULDBLOCK) {
        CHECK(poll(&polled, 1, LONG_MS) == 1);
    }
    OK(code);
    return fd;
}

int main(void)
{
    pf_config config = small_config();
    struct traces before;
    struct pollfd polled[2];
    pf_listener *listener, *second;
    pf_sender *tx;
    pf_receiver *rx;
    pf_loan *loan;
    char path[64];
    int fd, sent = 0, received = 0, refusals = 0, code = PF_OK;
    pid_t child;
    warm_up();
    before = traces_before();
    snprintf(path, sizeof path, "/tmp/pageferry-polls-%d", (int)getpid());
    OK(pf_listener_bind(path, &listener));
    ANSWERS(PF_EWOULDBLOCK, pf_listener_accept(listener, PF_NOWAIT, &fd));
    ANSWERS(PF_ETIMEDOUT, pf_listener_accept(listener, 1, &fd));
    child = forks_alone();
    if (child == 0) {
        the_peer(path);
        _exit(0);
    }
    OK(pf_sender_open_trusted(accepted(listener), &config, &tx));
    OK(pf_receiver_open_trusted(accepted(listener), &config, &rx));
    /* Whoever wants the same path tries whether anybody listens there. */
    ANSWERS(PF_EHOST, pf_listener_bind(path, &second));
    CHECK(pf_last_errno() == EADDRINUSE);
    OK(pf_listener_free(listener));
    CHECK(access(path, F_OK) != 0);

    OK(pf_fd(tx, &polled[0].fd));
    OK(pf_fd(rx, &polled[1].fd));
    while (received < MESSAGES) {
        int may_send = sent < MESSAGES;
        while (may_send) {
            pf_buffer *buffer;
            pf_lent *lent;
            void *data;
            size_t len;
            code = pf_sender_buffer(tx, LEN, PF_NOWAIT, &buffer);
            if (code == PF_EWOULDBLOCK) {
                refusals++;
                break;
            }
            OK(code);
            OK(pf_buffer_data(buffer, &data, &len));
            memset(data, sent & 0xff, len);
            OK(pf_sender_loan(tx, buffer, (uint64_t)sent++, PF_NOWAIT, &lent));
            OK(pf_lent_free(lent));
            may_send = sent < MESSAGES;
        }
        while ((code = pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &loan)) == PF_OK) {
            const void *data;
            size_t len;
            uint64_t tag;
            OK(pf_loan_data(loan, &data, &len));
            OK(pf_loan_tag(loan, &tag));
            CHECK(tag == (uint64_t)received && len == LEN && all_are(data, len, received & 0xff));
            OK(pf_loan_release(loan));
            received++;
        }
        ANSWERS(PF_EWOULDBLOCK, code);
        if (received < MESSAGES) {
            polled[0].events = sent < MESSAGES ? POLLIN : 0;
            polled[1].events = POLLIN;
            CHECK(poll(polled, 2, LONG_MS) >= 1);
        }
    }
    CHECK(refusals > 0);
    /* Nothing more comes until the peer ends. */
    ANSWERS(PF_EWOULDBLOCK, pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &loan));
    CHECK(!readable(rx));
    OK(pf_sender_free(tx));
    polled[1].events = POLLIN;
    while ((code = pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &loan)) == PF_EWOULDBLOCK) {
        CHECK(poll(&polled[1], 1, LONG_MS) == 1);
    }
    ANSWERS(PF_EPEER_DEAD, code);
    OK(pf_receiver_free(rx));
    ends_well(child);
    nothing_is_left_since(before);
    puts("polls: ok");
    return 0;
}
