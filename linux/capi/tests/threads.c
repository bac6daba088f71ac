/*
 * Threads: a sender and a receiver; many that read one message; several that make the same mistake at the same
 * time.
 *
 * ThreadSanitizer sees only what C does here: the stores to buffers, the reads of messages, the variables of the
 * test. The library's own locks are tested in Rust (loom, shuttle).
 */
#include "check.h"

#include <pthread.h>

enum { FRAMES = 300, FRAME = 1500000, ROUNDS = 400, THREADS = 4 };

static void *sends(void *argument)
{
    pf_sender *tx = (pf_sender *)argument;
    int at;
    for (at = 0; at < FRAMES; at++) {
        pf_lent *lent;
        pf_buffer *buffer = filled(tx, FRAME, at & 0xff);
        void *data;
        size_t len;
        switch (at % 4) {
        case 0:
            OK(pf_buffer_data(buffer, &data, &len));
            OK(pf_sender_loan(tx, buffer, (uint64_t)at, PF_WAIT, &lent));
            /* While the receiver reads it. */
            memset(data, 0xee, len);
            OK(pf_lent_free(lent));
            break;
        case 1:
            OK(pf_sender_donate(tx, buffer, (uint64_t)at));
            break;
        case 2:
            OK(pf_sender_loan(tx, buffer, (uint64_t)at, LONG_MS, &lent));
            OK(pf_lent_wait(lent, LONG_MS, &buffer));
            OK(pf_buffer_data(buffer, &data, &len));
            CHECK(all_are(data, len, at & 0xff));
            OK(pf_buffer_free(buffer));
            break;
        default:
            OK(pf_buffer_data(buffer, &data, &len));
            OK(pf_sender_copy(tx, data, 10, (uint64_t)at, PF_WAIT));
            OK(pf_buffer_free(buffer));
        }
    }
    OK(pf_sender_free(tx));
    return NULL;
}

static void *receives(void *argument)
{
    pf_receiver *rx = (pf_receiver *)argument;
    uint64_t at;
    pf_loan *loan;
    for (at = 0; at < FRAMES; at++) {
        static const unsigned how[] = { PF_RECV_READ, PF_RECV_COPY_ON_WRITE, PF_RECV_TRANSFER };
        const void *data;
        void *mine;
        size_t len;
        uint64_t tag;
        OK(pf_recv(rx, how[at % 3], LONG_MS, &loan));
        OK(pf_loan_data(loan, &data, &len));
        OK(pf_loan_tag(loan, &tag));
        CHECK(tag == at && len == (at % 4 == 3 ? 10 : FRAME) && all_are(data, len, (int)(at & 0xff)));
        if (at % 3 != 0) {
            OK(pf_loan_data_mut(loan, &mine, &len));
            memset(mine, 0xdd, len);
        }
        OK(pf_loan_release(loan));
    }
    ANSWERS(PF_EPEER_DEAD, pf_recv(rx, PF_RECV_READ, LONG_MS, &loan));
    OK(pf_receiver_free(rx));
    return NULL;
}

static void *reads(void *argument)
{
    pf_loan *loan = (pf_loan *)argument;
    const void *data;
    size_t len;
    int at;
    for (at = 0; at < 20; at++) {
        OK(pf_loan_data(loan, &data, &len));
        CHECK(len == FRAME && all_are(data, len, 5));
    }
    return NULL;
}

/* What several threads do with one handle at the same time. */
struct mistake {
    pf_sender *tx;
    pf_buffer *buffer;
    pf_lent *lent;
    pf_loan *loan;
    pthread_barrier_t start;
    pthread_mutex_t lock;
    int freed_buffer, freed_lent, freed_loan, frees_loan_too;
};

static void counts(struct mistake *mistake, int *counter, int code)
{
    CHECK(code == PF_OK || code == PF_EUSAGE);
    pthread_mutex_lock(&mistake->lock);
    *counter += code == PF_OK;
    pthread_mutex_unlock(&mistake->lock);
}

static void *errs(void *argument)
{
    struct mistake *mistake = (struct mistake *)argument;
    pf_buffer *back = NULL;
    pf_lent *lent = NULL;
    const void *data;
    size_t len;
    int code;
    pthread_barrier_wait(&mistake->start);
    /* One of them sends the buffer or frees it. */
    code = pf_sender_loan(mistake->tx, mistake->buffer, 0, PF_WAIT, &lent);
    if (code == PF_OK) {
        OK(pf_lent_free(lent));
    } else {
        CHECK(lent == NULL);
        counts(mistake, &mistake->freed_buffer, pf_buffer_free(mistake->buffer));
    }
    counts(mistake, &mistake->freed_buffer, code);
    /* Beside a free, a message is there, or is not. Its pointer is not used: nothing would help against that. */
    code = pf_loan_data(mistake->loan, &data, &len);
    CHECK(code == PF_EUSAGE || (code == PF_OK && len == 10));
    counts(mistake, &mistake->freed_loan, pf_loan_release(mistake->loan));
    /* One has the buffer back. */
    do {
        code = pf_lent_wait(mistake->lent, LONG_MS, &back);
        /* "In use by another thread" while that one waits. */
    } while (code == PF_EUSAGE && strstr(pf_last_error(), "in use") != NULL);
    counts(mistake, &mistake->freed_lent, code);
    if (code == PF_OK) {
        OK(pf_buffer_free(back));
    }
    return NULL;
}

static void mistakes(void)
{
    pf_config config = small_config();
    pf_receiver *rx;
    struct mistake mistake;
    int round, at;
    OK(pf_channel_pair(&config, &mistake.tx, &rx));
    CHECK(pthread_barrier_init(&mistake.start, NULL, THREADS) == 0);
    CHECK(pthread_mutex_init(&mistake.lock, NULL) == 0);
    for (round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        pf_loan *sent;
        size_t handles = pf_open_handles();
        OK(pf_sender_loan(mistake.tx, filled(mistake.tx, 10, 1), 0, PF_WAIT, &mistake.lent));
        OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &mistake.loan));
        mistake.buffer = filled(mistake.tx, 10, 2);
        mistake.freed_buffer = mistake.freed_lent = mistake.freed_loan = 0;
        for (at = 0; at < THREADS; at++) {
            CHECK(pthread_create(&threads[at], NULL, errs, &mistake) == 0);
        }
        for (at = 0; at < THREADS; at++) {
            CHECK(pthread_join(threads[at], NULL) == 0);
        }
        CHECK(mistake.freed_buffer == 1 && mistake.freed_lent == 1 && mistake.freed_loan == 1);
        CHECK(pf_open_handles() == handles);
        if (pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &sent) == PF_OK) {
            OK(pf_loan_release(sent));
        }
    }
    OK(pf_sender_free(mistake.tx));
    OK(pf_receiver_free(rx));
    pthread_barrier_destroy(&mistake.start);
    pthread_mutex_destroy(&mistake.lock);
}

/* A receiver that is freed while another thread waits in it: that call ends as it would have, and the channel then. */
static void *waits(void *argument)
{
    pf_loan *loan;
    int code;
    do {
        /* The main thread asks something of it now and then. */
        code = pf_recv((pf_receiver *)argument, PF_RECV_READ, LONG_MS, &loan);
    } while (code == PF_EUSAGE && strstr(pf_last_error(), "another thread") != NULL);
    OK(code);
    return loan;
}

static void freed_in_use(void)
{
    pf_config config = small_config();
    pf_sender *tx;
    pf_receiver *rx;
    pf_loan *loan;
    pthread_t thread;
    int level, code;
    OK(pf_channel_pair(&config, &tx, &rx));
    CHECK(pthread_create(&thread, NULL, waits, rx) == 0);
    do {
        code = pf_receiver_level(rx, &level);
        CHECK(code == PF_OK || code == PF_EUSAGE);
    } while (code == PF_OK);
    CHECK(strstr(pf_last_error(), "another thread") != NULL);
    OK(pf_receiver_free(rx));
    ANSWERS(PF_EUSAGE, pf_receiver_free(rx));
    OK(pf_sender_copy(tx, "x", 1, 0, PF_WAIT));
    CHECK(pthread_join(thread, (void **)&loan) == 0);
    OK(pf_loan_release(loan));
    while ((code = pf_sender_copy(tx, "x", 1, 0, PF_WAIT)) == PF_OK) {
    }
    CHECK(code == PF_EPEER_DEAD);
    OK(pf_sender_free(tx));
}

int main(void)
{
    pf_config config = small_config();
    struct traces before;
    pthread_t threads[THREADS];
    pf_sender *tx;
    pf_receiver *rx;
    pf_lent *lent;
    pf_loan *loan;
    int at;
    warm_up();
    before = traces_before();

    OK(pf_channel_pair(&config, &tx, &rx));
    CHECK(pthread_create(&threads[0], NULL, sends, tx) == 0);
    CHECK(pthread_create(&threads[1], NULL, receives, rx) == 0);
    CHECK(pthread_join(threads[0], NULL) == 0 && pthread_join(threads[1], NULL) == 0);

    OK(pf_channel_pair(&config, &tx, &rx));
    OK(pf_sender_loan(tx, filled(tx, FRAME, 5), 0, PF_WAIT, &lent));
    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    for (at = 0; at < THREADS; at++) {
        CHECK(pthread_create(&threads[at], NULL, reads, loan) == 0);
    }
    for (at = 0; at < THREADS; at++) {
        CHECK(pthread_join(threads[at], NULL) == 0);
    }
    OK(pf_loan_release(loan));
    OK(pf_lent_free(lent));
    OK(pf_sender_free(tx));
    OK(pf_receiver_free(rx));

    mistakes();
    freed_in_use();
    nothing_is_left_since(before);
    puts("threads: ok");
    return 0;
}
