/*
 * A forked child: its parent's handles are none of its own, it reads what its parent holds, it changes nothing of
 * its parent's, and it makes channels itself. A lock that another thread of the parent holds at that moment does
 * not matter.
 */
#include "check.h"

#include <pthread.h>

enum { LEN = 1000000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

/*
 * AddressSanitizer's allocator does not hold its own locks over a fork (GCC 12's, at least: a child waits for ever in
 * `SizeClassAllocator64::GetFromAllocator` where a thread of its parent was there). Under it the other thread is
 * therefore between two rounds when its parent forks; where the C library's allocator is used, it may be anywhere.
 */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
static pthread_mutex_t allocates = PTHREAD_MUTEX_INITIALIZER;
#define ALLOCATOR_IS_TAKEN() CHECK(pthread_mutex_lock(&allocates) == 0)
#define ALLOCATOR_IS_FREE() CHECK(pthread_mutex_unlock(&allocates) == 0)
#else
#define ALLOCATOR_IS_TAKEN() ((void)0)
#define ALLOCATOR_IS_FREE() ((void)0)
#endif

static int stops(int now)
{
    int does;
    pthread_mutex_lock(&lock);
    stop |= now;
    does = stop;
    pthread_mutex_unlock(&lock);
    return does;
}

/* Keeps the library's locks busy. */
static void *hurries(void *argument)
{
    pf_sender *tx = (pf_sender *)argument;
    while (!stops(0)) {
        pf_buffer *buffer;
        ALLOCATOR_IS_TAKEN();
        buffer = filled(tx, 1, 1);
        OK(pf_buffer_free(buffer));
        ALLOCATOR_IS_FREE();
    }
    return NULL;
}

static void the_child(pf_sender *tx, pf_receiver *rx, pf_buffer *buffer, pf_lent *lent, pf_loan *loan,
                      const void *lent_data, const void *loan_data, void *buffer_data)
{
    pf_config config = small_config();
    pf_sender *own_tx;
    pf_receiver *own_rx;
    pf_buffer *own;
    pf_lent *own_lent;
    pf_loan *own_loan;
    void *data;
    const void *read_only;
    size_t len, handles = pf_open_handles();
    int fd, home;
    CHECK(handles == 0);
#define FORKED(call)                                             \
    do {                                                         \
        ANSWERS(PF_EUSAGE, call);                                \
        CHECK(strstr(pf_last_error(), "forked from") != NULL);   \
    } while (0)
    FORKED(pf_sender_buffer(tx, 1, PF_NOWAIT, &own));
    FORKED(pf_sender_copy(tx, "x", 1, 0, PF_NOWAIT));
    FORKED(pf_sender_loan(tx, buffer, 0, PF_NOWAIT, &own_lent));
    FORKED(pf_recv(rx, PF_RECV_READ, PF_NOWAIT, &own_loan));
    FORKED(pf_fd(rx, &fd));
    FORKED(pf_buffer_data(buffer, &data, &len));
    FORKED(pf_buffer_free(buffer));
    FORKED(pf_lent_is_home(lent, &home));
    FORKED(pf_lent_wait(lent, PF_NOWAIT, &own));
    FORKED(pf_lent_free(lent));
    FORKED(pf_loan_data(loan, &read_only, &len));
    FORKED(pf_loan_transfer(loan));
    FORKED(pf_loan_release(loan));
    FORKED(pf_sender_free(tx));
    FORKED(pf_receiver_free(rx));
    /* It reads what its parent has, and its stores are its own. */
    CHECK(all_are(lent_data, LEN, 1) && all_are(loan_data, LEN, 1) && all_are(buffer_data, LEN, 2));
    memset(buffer_data, 0x77, LEN);
    /* It has channels of its own, and their handles are none of its parent's. */
    OK(pf_channel_pair(&config, &own_tx, &own_rx));
    CHECK(own_tx != tx && own_rx != rx);
    OK(pf_sender_loan(own_tx, filled(own_tx, LEN, 3), 9, PF_WAIT, &own_lent));
    OK(pf_recv(own_rx, PF_RECV_READ, PF_WAIT, &own_loan));
    CHECK(own_lent != lent && own_loan != loan);
    OK(pf_loan_data(own_loan, &read_only, &len));
    CHECK(len == LEN && all_are(read_only, len, 3));
    OK(pf_loan_release(own_loan));
    OK(pf_lent_free(own_lent));
    FORKED(pf_loan_release(loan));
    OK(pf_sender_free(own_tx));
    OK(pf_receiver_free(own_rx));
    CHECK(pf_open_handles() == 0);
}

int main(void)
{
    pf_config config = small_config();
    struct traces before;
    pf_sender *tx, *busy_tx;
    pf_receiver *rx, *busy_rx;
    pf_buffer *buffer;
    pf_lent *lent;
    pf_loan *loan;
    const void *lent_data, *loan_data;
    void *buffer_data;
    size_t len;
    pthread_t thread;
    int round;
    warm_up();
    before = traces_before();
    OK(pf_channel_pair(&config, &busy_tx, &busy_rx));
    CHECK(pthread_create(&thread, NULL, hurries, busy_tx) == 0);

    OK(pf_channel_pair(&config, &tx, &rx));
    OK(pf_sender_loan(tx, filled(tx, LEN, 1), 0, PF_WAIT, &lent));
    OK(pf_lent_data(lent, &lent_data, &len));
    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    OK(pf_loan_data(loan, &loan_data, &len));
    buffer = filled(tx, LEN, 2);
    OK(pf_buffer_data(buffer, &buffer_data, &len));

    for (round = 0; round < 30; round++) {
        pid_t child;
        ALLOCATOR_IS_TAKEN();
        child = fork();
        ALLOCATOR_IS_FREE();
        CHECK(child >= 0);
        if (child == 0) {
            /* A child that hangs ends. */
            alarm(LONG_MS / 1000);
            the_child(tx, rx, buffer, lent, loan, lent_data, loan_data, buffer_data);
            if (round % 10 == 0) {
                /* A child's child has two generations of handles that are none of its own. */
                pid_t grandchild = fork();
                CHECK(grandchild >= 0);
                if (grandchild == 0) {
                    alarm(LONG_MS / 1000);
                    memset(buffer_data, 2, LEN);
                    the_child(tx, rx, buffer, lent, loan, lent_data, loan_data, buffer_data);
                    _exit(0);
                }
                ends_well(grandchild);
            }
            _exit(0);
        }
        ends_well(child);
        CHECK(all_are(buffer_data, LEN, 2));
    }
    stops(1);
    CHECK(pthread_join(thread, NULL) == 0);

    /* All of it works as before. */
    OK(pf_loan_release(loan));
    OK(pf_lent_free(lent));
    OK(pf_sender_loan(tx, buffer, 0, PF_WAIT, &lent));
    OK(pf_recv(rx, PF_RECV_READ, PF_WAIT, &loan));
    OK(pf_loan_data(loan, &loan_data, &len));
    CHECK(len == LEN && all_are(loan_data, LEN, 2));
    OK(pf_loan_release(loan));
    OK(pf_lent_wait(lent, LONG_MS, &buffer));
    OK(pf_buffer_free(buffer));
    OK(pf_sender_free(tx));
    OK(pf_receiver_free(rx));
    OK(pf_sender_free(busy_tx));
    OK(pf_receiver_free(busy_rx));
    nothing_is_left_since(before);
    puts("forked: ok");
    return 0;
}
