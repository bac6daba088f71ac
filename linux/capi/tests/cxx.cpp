// The header in C++11: handles in unique_ptr, which never looks behind a pointer, and errors as exceptions.
#include "check.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

void must(int code)
{
    if (code != PF_OK) {
        throw std::runtime_error(std::string(pf_strerror(code)) + ": " + pf_last_error());
    }
}

struct Frees {
    void operator()(pf_sender *handle) const { pf_sender_free(handle); }
    void operator()(pf_receiver *handle) const { pf_receiver_free(handle); }
    void operator()(pf_buffer *handle) const { pf_buffer_free(handle); }
    void operator()(pf_lent *handle) const { pf_lent_free(handle); }
    void operator()(pf_loan *handle) const { pf_loan_release(handle); }
};

template <typename T> using Handle = std::unique_ptr<T, Frees>;

std::pair<Handle<pf_sender>, Handle<pf_receiver>> channel(const pf_config &config)
{
    pf_sender *tx = nullptr;
    pf_receiver *rx = nullptr;
    must(pf_channel_pair(&config, &tx, &rx));
    return std::make_pair(Handle<pf_sender>(tx), Handle<pf_receiver>(rx));
}

Handle<pf_lent> loan(pf_sender *tx, Handle<pf_buffer> buffer)
{
    pf_lent *lent = nullptr;
    // The call uses the buffer up; where it has not, the deleter frees it, and otherwise a second end does no harm.
    must(pf_sender_loan(tx, buffer.get(), 0, PF_WAIT, &lent));
    return Handle<pf_lent>(lent);
}

void a_vector_goes_over()
{
    auto ends = channel(small_config());
    std::vector<double> numbers(200000);
    for (std::size_t at = 0; at < numbers.size(); ++at) {
        numbers[at] = static_cast<double>(at) / 2;
    }
    pf_buffer *made = nullptr;
    must(pf_sender_buffer(ends.first.get(), numbers.size() * sizeof(double), PF_WAIT, &made));
    Handle<pf_buffer> buffer(made);
    must(pf_buffer_write(made, numbers.data(), numbers.size() * sizeof(double)));
    Handle<pf_lent> lent = loan(ends.first.get(), std::move(buffer));
    pf_receiver *rx = ends.second.get();
    std::thread reader([rx, &numbers] {
        pf_loan *received = nullptr;
        must(pf_recv(rx, PF_RECV_READ, LONG_MS, &received));
        Handle<pf_loan> message(received);
        const void *data = nullptr;
        std::size_t len = 0;
        must(pf_loan_data(received, &data, &len));
        const double *first = static_cast<const double *>(data);
        CHECK(std::vector<double>(first, first + len / sizeof(double)) == numbers);
    });
    reader.join();
    must(pf_lent_wait(lent.get(), LONG_MS, &made));
    Handle<pf_buffer> home(made);
}

void an_error_is_an_exception_that_says_who_is_to_blame()
{
    auto ends = channel(small_config());
    ends.second.reset();
    try {
        // A sender sees that nobody is there when it looks, which it does now and then.
        for (;;) {
            must(pf_sender_copy(ends.first.get(), "x", 1, 0, PF_WAIT));
        }
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()).find("the peer is gone") == 0);
    }
}

} // namespace

int main()
{
    warm_up();
    const traces before = traces_now();
    a_vector_goes_over();
    an_error_is_an_exception_that_says_who_is_to_blame();
    nothing_is_left_since(before);
    std::puts("cxx: ok");
    return 0;
}
