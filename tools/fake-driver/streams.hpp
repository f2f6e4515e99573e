// Streams as queues whose work runs late and in the most hostile order that CUDA's rules allow.
#pragma once
#include "api.hpp"
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

struct Stream;

struct Context {
    int device = 0;
    uint64_t retained = 0;
    // The answer of every call after an error that breaks a real context.
    CUresult broken = OK;
};

// All work that a stream had been given at some moment.
struct Point {
    std::shared_ptr<Stream> stream;
    uint64_t count = 0;

    bool reached() const;
};

// Host memory that work will read or write when it runs.
struct HostRange {
    uint64_t start = 0, len = 0;

    bool meets(HostRange other) const {
        return len && other.len && start < other.start + other.len && other.start < start + len;
    }
};

struct Work {
    std::function<CUresult()> run;
    HostRange host;
    std::vector<Point> after;
};

struct Stream {
    Context* context = nullptr;
    bool legacy = false;
    bool blocking = true;  // keeps order with the legacy stream
    uint64_t queued = 0;
    std::deque<Work> pending;

    uint64_t done() const { return queued - pending.size(); }
};

inline bool Point::reached() const { return !stream || stream->done() >= count; }

struct Event {
    Context* context = nullptr;
    bool timed = true;
    Point recorded;
    std::chrono::steady_clock::time_point time;
};

// Holds the queues and decides what runs next.
class Scheduler {
  public:
    bool async = false;

    // 0 the newest stream first; 1 only awaited work; 2 everything else before awaited work; any other number draws one
    // of these or a random order for each wait.
    void seed(uint64_t value) {
        chosen = value;
        state = value * 0x9e3779b97f4a7c15ull | 1;
    }

    std::shared_ptr<Stream> make(Context* context, bool blocking, bool legacy = false) {
        auto stream = std::make_shared<Stream>();
        stream->context = context;
        stream->blocking = blocking;
        stream->legacy = legacy;
        streams.push_back(stream);
        return stream;
    }

    // The stream's queue is still worked off.
    void forget(const std::shared_ptr<Stream>& stream) {
        if (stream->pending.empty()) drop(stream);
        else orphans.push_back(stream);
    }

    void forget_all(const Context* context) {
        for (size_t at = streams.size(); at-- > 0;)
            if (streams[at]->context == context) streams.erase(streams.begin() + at);
    }

    static Point tail(const std::shared_ptr<Stream>& stream) { return {stream, stream->queued}; }

    void queue(const std::shared_ptr<Stream>& stream, Work work) {
        for (const auto& other : streams) {
            const bool ordered = other->context == stream->context && other != stream &&
                                 ((stream->legacy && other->blocking) || (other->legacy && stream->blocking));
            if (ordered && !other->pending.empty()) work.after.push_back(tail(other));
        }
        stream->pending.push_back(std::move(work));
        stream->queued++;
        if (!async) finish(tail(stream));
    }

    void finish(const Point& point) {
        const Order order = draw();
        while (!point.reached()) run_next(order, point);
        sweep();
    }
    void finish(const Context* context) {
        for (const Order order = draw();;) {
            std::shared_ptr<Stream> waiting;
            for (const auto& stream : streams)
                if (stream->context == context && !stream->pending.empty()) waiting = stream;
            if (!waiting) break;
            run_next(order, tail(waiting));
        }
        sweep();
    }
    // One piece of work, so that a polling caller makes progress.
    void nudge(const Point& point) {
        if (!point.reached()) run_next(draw(), point);
        sweep();
    }

    // Work that will never run: its context broke.
    void abandon(const Context* context) {
        for (const auto& stream : streams)
            if (stream->context == context) stream->pending.clear();
    }

    bool touches(HostRange host) const {
        for (const auto& stream : streams)
            for (const Work& work : stream->pending)
                if (work.host.meets(host)) return true;
        return false;
    }

  private:
    enum class Order { Newest, Needed, OthersFirst, Any };

    Order draw() {
        if (chosen <= 2) return Order(chosen);
        return Order(random(4));
    }
    uint64_t random(uint64_t below) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state % below;
    }

    static bool ready(const Stream& stream) {
        if (stream.pending.empty()) return false;
        for (const Point& point : stream.pending.front().after)
            if (!point.reached()) return false;
        return true;
    }

    // A piece of work waits only for work that was queued before it, so there is always one to run.
    void run_next(Order order, const Point& point) {
        std::shared_ptr<Stream> pick;
        if (order == Order::Needed) {
            pick = point.stream;
            while (!ready(*pick)) {
                for (const Point& other : pick->pending.front().after) {
                    if (other.reached()) continue;
                    pick = other.stream;
                    break;
                }
            }
        } else {
            std::vector<std::shared_ptr<Stream>> able;
            for (const auto& stream : streams)
                if (ready(*stream)) able.push_back(stream);
            pick = able[order == Order::Any ? random(able.size()) : able.size() - 1];
            if (order == Order::OthersFirst && pick == point.stream && able.size() > 1) pick = able[able.size() - 2];
        }
        Work work = std::move(pick->pending.front());
        pick->pending.pop_front();
        const CUresult result = work.run();
        if (result == OK) return;
        if (pick->context->broken == OK) pick->context->broken = result;
        abandon(pick->context);
    }

    void drop(const std::shared_ptr<Stream>& stream) {
        for (size_t at = 0; at < streams.size(); at++) {
            if (streams[at] != stream) continue;
            streams.erase(streams.begin() + at);
            return;
        }
    }
    void sweep() {
        for (size_t at = 0; at < orphans.size();) {
            if (orphans[at]->pending.empty()) {
                drop(orphans[at]);
                orphans.erase(orphans.begin() + at);
            } else {
                at++;
            }
        }
    }

    std::vector<std::shared_ptr<Stream>> streams;  // in the order they were made
    std::vector<std::shared_ptr<Stream>> orphans;  // destroyed with work left
    uint64_t chosen = 0, state = 1;
};
