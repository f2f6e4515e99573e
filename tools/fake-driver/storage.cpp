// A stand-in for cuFile on the fake driver. Reads arrive as late as allowed: those of a batch when their status is
// queried, the last submitted first, those of a stream when the stream runs, both no earlier than their latency. Calls
// are logged in their order, and calls that the real library does not define are `errors`.
//
// Built three times: whole, without the batch calls (WITHOUT_BATCH), and without the asynchronous ones too
// (WITHOUT_ASYNC). README.md lists the script's keys.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "library.hpp"

namespace {

using Clock = std::chrono::steady_clock;

struct Error {
    int code, cuda;
};

struct Description {
    int kind;
    union {
        int descriptor;
        void* handle;
    };
    const void* file_system;
};

struct Properties {
    unsigned major, minor;
    size_t poll_threshold, max_direct;
    unsigned status_flags, control_flags;
    unsigned features, max_cache, per_buffer_cache, max_pinned, max_batch, batch_timeout;
};

struct Parameters {
    int mode;
    char* address;
    off_t offset, address_offset;
    size_t len;
    void* handle;
    int opcode;
    void* cookie;
};

struct Event {
    void* cookie;
    int status;
    size_t answer;
};

enum : int { PENDING = 2, INVALID = 4, COMPLETE = 16, FAILED = 64 };
enum : int {
    NOT_REGISTERED = 5027,
    INVALID_ARGUMENT = 5022,
    NO_DRIVER_DEVICE = 5029,
    INTERNAL = 5030,
    NO_ASYNC = 5038,
    NO_SETUP = 5039,
    NO_SUBMIT = 5040,
    NO_STATUS = 5041,
    IO = 5044,
};

// Reads that were submitted and are not over.
std::atomic<uint64_t> under_way{0};

// Held by a read until it has run, or never will.
struct Ticket {
    Ticket() { under_way++; }
    Ticket(const Ticket&) = delete;
    ~Ticket() { under_way--; }
};

// One read: its request, and its result.
struct Read {
    int descriptor;
    char* to;
    size_t len;
    off_t offset;
    // From 1, in the order of submission.
    uint64_t number;
    Clock::time_point due;
    void* cookie = nullptr;
    std::shared_ptr<Ticket> ticket;
};

struct Batch {
    unsigned most;
    std::vector<Read> reads;
};

struct State {
    std::map<std::string, uint64_t> script, count;
    std::string log;
    std::map<uintptr_t, int> files;
    std::map<uintptr_t, Batch> batches;
    std::set<CUstream> streams;
    std::map<CUstream, Clock::time_point> stream_due;
    // Handles are never used again.
    uintptr_t next = 0x1000;
    uint64_t reads = 0;
    bool cut = false;

    uint64_t key(const char* name, uint64_t otherwise = 0) const {
        const auto found = script.find(name);
        return found == script.end() ? otherwise : found->second;
    }
    // Whether `name=N` or `name_from=N` means this one.
    bool hits(const std::string& name, uint64_t number) const {
        const uint64_t from = key((name + "_from").c_str());
        return number == key(name.c_str()) || (from && number >= from);
    }
    void note(const char* what, off_t offset = 0, size_t len = 0) {
        std::ostringstream line;
        line << std::this_thread::get_id() << ' ' << what << ' ' << offset << ' ' << len << '\n';
        log += line.str();
    }
    void wrong(const char* what) {
        fprintf(stderr, "fake cuFile: %s\n", what);
        count["errors"]++;
    }
    Read take(int descriptor, char* to, size_t len, off_t offset, const char* what) {
        note(what, offset, len);
        count["reads"]++;
        const auto due = Clock::now() + std::chrono::microseconds(key("latency"));
        Read read{descriptor, to, len, offset, ++reads, due, nullptr, std::make_shared<Ticket>()};
        count["most_under_way"] = std::max<uint64_t>(count["most_under_way"], under_way);
        return read;
    }
};

std::mutex mutex;

State& state() {
    // Never destroyed: threads may read to the end.
    static State* const one = new State;
    return *one;
}

bool understand(State& s, const char* text) {
    static const std::set<std::string> keys{"latency", "fail", "fail_from", "short", "short_from", "register", "batch",
                                            "batches", "setup", "setup_from", "submit", "submit_from", "status_from",
                                            "events", "async", "async_from", "cut", "lie"};
    std::istringstream words(text ? text : "");
    std::map<std::string, uint64_t> script;
    for (std::string word; words >> word;) {
        const size_t at = word.find('=');
        if (at == std::string::npos || !keys.count(word.substr(0, at))) return false;
        script[word.substr(0, at)] = strtoull(word.c_str() + at + 1, nullptr, 10);
    }
    s.script = script;
    s.count.clear();
    s.log.clear();
    s.reads = 0;
    s.cut = false;
    return true;
}

// The variable is read when the library is first used; a script replaces it.
void begin() {
    static const bool begun = [] {
        const std::lock_guard<std::mutex> guard(mutex);
        if (!understand(state(), getenv("SWATH_FAKE_STORAGE"))) state().wrong("SWATH_FAKE_STORAGE is not understood");
        return true;
    }();
    (void)begun;
}

// Reads into device memory: only from work that the driver runs. Gives bytes, or an error as a negative number.
ssize_t perform(const Read& read) {
    std::this_thread::sleep_until(read.due);
    bool fails, lies;
    size_t len = read.len;
    {
        const std::lock_guard<std::mutex> guard(mutex);
        State& s = state();
        if (s.key("cut") && !s.cut) {
            // The file was opened to be read.
            s.cut = true;
            const std::string path = "/proc/self/fd/" + std::to_string(read.descriptor);
            const int writable = open(path.c_str(), O_WRONLY | O_CLOEXEC);
            if (writable < 0 || ftruncate(writable, off_t(s.key("cut"))) != 0) s.wrong("the file cannot be cut");
            close(writable);
        }
        fails = s.hits("fail", read.number);
        lies = s.key("lie");
        if (s.hits("short", read.number)) len /= 2;
    }
    if (fails) return -ssize_t(IO);
    std::vector<char> bytes(len);
    const ssize_t got = pread(read.descriptor, bytes.data(), len, read.offset);
    if (got > 0) memcpy(read.to, bytes.data(), size_t(got));
    const std::lock_guard<std::mutex> guard(mutex);
    if (got > 0) state().count["bytes"] += uint64_t(got);
    return lies ? ssize_t(read.len) : got;
}

// Runs reads on a stream of the library's own and waits for it, with nothing locked.
bool perform_all(const std::vector<Read>& reads, std::vector<ssize_t>& answers) {
    CUstream stream = nullptr;
    answers.assign(reads.size(), 0);
    if (function<decltype(cuStreamCreate)>("cuStreamCreate")(&stream, 1) != OK) return false;
    const bool done = queue(stream, [&reads, &answers] {
        for (size_t at = reads.size(); at-- > 0;) answers[at] = perform(reads[at]);
    }) == OK && function<decltype(cuStreamSynchronize)>("cuStreamSynchronize")(stream) == OK;
    function<decltype(cuStreamDestroy_v2)>("cuStreamDestroy_v2")(stream);
    return done;
}

}  // namespace

// Another script, and all counts at zero; null reads SWATH_FAKE_STORAGE again. Not 0: it is not understood.
API int swath_fake_storage_script(const char* text) {
    begin();
    const std::lock_guard<std::mutex> guard(mutex);
    return understand(state(), text ? text : getenv("SWATH_FAKE_STORAGE")) ? 0 : 1;
}

// One of the counts that README.md names; 0 for what has not happened.
API unsigned long long swath_fake_storage_count(const char* what) {
    begin();
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (!strcmp(what, "live")) return s.files.size() + s.batches.size() + s.streams.size() + under_way;
    const auto found = s.count.find(what);
    return found == s.count.end() ? 0 : found->second;
}

// The calls since the last script, one line each: thread, what, offset, length. Gives the length of it all.
API size_t swath_fake_storage_log(char* out, size_t room) {
    const std::lock_guard<std::mutex> guard(mutex);
    const std::string& log = state().log;
    if (room) memcpy(out, log.data(), std::min(room, log.size()));
    return log.size();
}

API Error cuFileDriverOpen() {
    begin();
    return driver() ? Error{0, 0} : Error{NO_DRIVER_DEVICE, 0};
}

API Error cuFileDriverClose() {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (!s.batches.empty() || !s.streams.empty()) s.wrong("closed with batches or streams left");
    return {0, 0};
}

API Error cuFileDriverGetProperties(Properties* properties) {
    const std::lock_guard<std::mutex> guard(mutex);
    memset(properties, 0, sizeof *properties);
    properties->max_batch = unsigned(state().key("batch", 128));
    return {0, 0};
}

API Error cuFileHandleRegister(void** handle, Description* description) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (s.key("register")) return {int(s.key("register")), 0};
    const uintptr_t made = s.next++;
    s.files[made] = description->descriptor;
    *handle = reinterpret_cast<void*>(made);
    return {0, 0};
}

API void cuFileHandleDeregister(void* handle) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (under_way) s.wrong("a file is let go with reads under way");
    if (!s.files.erase(reinterpret_cast<uintptr_t>(handle))) s.wrong("a file is let go that is not registered");
}

API ssize_t cuFileRead(void* handle, void* address, size_t len, off_t offset, off_t address_offset) {
    std::vector<Read> reads;
    {
        const std::lock_guard<std::mutex> guard(mutex);
        State& s = state();
        const auto file = s.files.find(reinterpret_cast<uintptr_t>(handle));
        if (file == s.files.end()) return s.wrong("a file is read that is not registered"), -NOT_REGISTERED;
        reads.push_back(s.take(file->second, static_cast<char*>(address) + address_offset, len, offset, "read"));
    }
    // Outside of the driver, so that threads wait side by side.
    std::this_thread::sleep_until(reads[0].due);
    std::vector<ssize_t> answers;
    return perform_all(reads, answers) ? answers[0] : -5011;
}

#ifndef WITHOUT_BATCH

API Error cuFileBatchIOSetUp(void** batch, unsigned most) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (s.hits("setup", ++s.count["setup"])) return {NO_SETUP, 0};
    if (!most || most > s.key("batch", 128)) return {INVALID_ARGUMENT, 0};
    if (s.key("batches") && s.batches.size() >= s.key("batches")) return {NO_SETUP, 0};
    const uintptr_t made = s.next++;
    s.batches[made].most = most;
    *batch = reinterpret_cast<void*>(made);
    return {0, 0};
}

API Error cuFileBatchIOSubmit(void* batch, unsigned count, Parameters* reads, unsigned flags) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    const auto found = s.batches.find(reinterpret_cast<uintptr_t>(batch));
    if (found == s.batches.end()) return s.wrong("a batch is submitted that is not set up"), Error{INVALID_ARGUMENT, 0};
    if (s.hits("submit", ++s.count["submit"])) return {NO_SUBMIT, 0};
    if (count > found->second.most || flags || !found->second.reads.empty()) return {INVALID_ARGUMENT, 0};
    for (unsigned at = 0; at < count; at++) {
        const auto file = s.files.find(reinterpret_cast<uintptr_t>(reads[at].handle));
        if (reads[at].mode != 1 || reads[at].opcode != 0 || file == s.files.end()) return {INVALID_ARGUMENT, 0};
    }
    for (unsigned at = 0; at < count; at++) {
        const Parameters& one = reads[at];
        const int descriptor = s.files[reinterpret_cast<uintptr_t>(one.handle)];
        Read read = s.take(descriptor, one.address + one.address_offset, one.len, one.offset, "batch");
        read.cookie = one.cookie;
        found->second.reads.push_back(read);
    }
    return {0, 0};
}

API Error cuFileBatchIOGetStatus(void* batch, unsigned least, unsigned* count, Event* events, timespec* timeout) {
    std::vector<Read> reads;
    {
        const std::lock_guard<std::mutex> guard(mutex);
        State& s = state();
        const auto found = s.batches.find(reinterpret_cast<uintptr_t>(batch));
        if (found == s.batches.end()) return s.wrong("the status of no batch is asked for"), Error{INVALID_ARGUMENT, 0};
        s.note("wait");
        s.count["waits"]++;
        if (s.hits("status", s.count["waits"])) return {NO_STATUS, 0};
        if (least > *count) return {INVALID_ARGUMENT, 0};
        auto& left = found->second.reads;
        const auto patience = std::chrono::seconds(timeout->tv_sec) + std::chrono::nanoseconds(timeout->tv_nsec);
        const auto until = Clock::now() + patience;
        const size_t most = s.key("events") ? std::min<size_t>(*count, s.key("events")) : *count;
        while (!left.empty() && reads.size() < most && left.back().due <= until) {
            reads.push_back(left.back());
            left.pop_back();
        }
    }
    // Outside of the driver: others may go on.
    for (const Read& read : reads) std::this_thread::sleep_until(read.due);
    std::vector<ssize_t> answers;
    const bool done = perform_all(reads, answers);
    *count = unsigned(reads.size());
    for (size_t at = 0; at < reads.size(); at++) {
        const ssize_t answer = done ? answers[at] : -5011;
        events[at] = Event{reads[at].cookie, answer < 0 ? FAILED : COMPLETE, size_t(answer)};
    }
    return {0, 0};
}

API void cuFileBatchIODestroy(void* batch) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    const auto found = s.batches.find(reinterpret_cast<uintptr_t>(batch));
    if (found == s.batches.end()) return s.wrong("no batch is destroyed");
    if (!found->second.reads.empty()) s.wrong("a batch is destroyed with reads under way");
    s.batches.erase(found);
}

#endif
#ifndef WITHOUT_ASYNC

API Error cuFileStreamRegister(CUstream stream, unsigned flags) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (flags > 15) return {INVALID_ARGUMENT, 0};
    if (!s.streams.insert(stream).second) s.wrong("a stream is registered twice");
    return {0, 0};
}

API Error cuFileStreamDeregister(CUstream stream) {
    const std::lock_guard<std::mutex> guard(mutex);
    State& s = state();
    if (!s.streams.erase(stream)) s.wrong("a stream is let go that is not registered");
    s.stream_due.erase(stream);
    return {0, 0};
}

API Error cuFileReadAsync(void* handle, void* address, size_t* len, off_t* offset, off_t* address_offset, ssize_t* answer,
                          CUstream stream) {
    Read read;
    {
        const std::lock_guard<std::mutex> guard(mutex);
        State& s = state();
        const auto file = s.files.find(reinterpret_cast<uintptr_t>(handle));
        if (file == s.files.end()) return s.wrong("a file is read that is not registered"), Error{NOT_REGISTERED, 0};
        if (s.hits("async", ++s.count["async"])) return {NO_ASYNC, 0};
        read = s.take(file->second, static_cast<char*>(address), *len, *offset, "async");
        // One after the other on a stream, side by side on several.
        auto& last = s.stream_due[stream];
        last = std::max(last, Clock::now()) + std::chrono::microseconds(s.key("latency"));
        read.due = last;
    }
    const CUresult queued = queue(stream, [read, len, offset, address_offset, answer]() mutable {
        {
            const std::lock_guard<std::mutex> guard(mutex);
            state().note("run", *offset, *len);
        }
        // Taken when it runs, as by the real one.
        read.len = *len;
        read.offset = *offset;
        read.to += *address_offset;
        *answer = perform(read);
    });
    return queued == OK ? Error{0, 0} : Error{5011, queued};
}

#endif
