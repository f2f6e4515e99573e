// Entry points about streams and events: waits between them.
#include "state.hpp"

static CUresult make_stream(CUstream* handle, unsigned flags) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!handle || flags > 1) return INVALID_VALUE;
    State& s = state();
    s.count.streams_made++;
    *handle = s.streams.add(s.scheduler.make(call.context, flags == 0));
    return OK;
}

API CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return make_stream(stream, flags); }
API CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int) { return make_stream(stream, flags); }

API CUresult cuStreamDestroy_v2(CUstream handle) {
    Call call(Need::Context, Kind::GivesBack);
    State& s = state();
    const auto stream = s.streams.find(handle);
    if (!stream) {
        if (call.result) return call.result;
        report("cuStreamDestroy of %p, which does not exist (any more)", handle);
        return INVALID_HANDLE;
    }
    s.streams.remove(handle);
    s.scheduler.forget(stream);
    return call.result;
}

// Every explicit wait comes through here: it runs the awaited work, then returns its result.
static CUresult wait_for(Context& context, const Point* point) {
    State& s = state();
    s.count.waited = true;
    if (++s.count.sync == s.script.fail_sync) {
        context.broken = LAUNCH_FAILED;
        s.scheduler.abandon(&context);
        return LAUNCH_FAILED;
    }
    if (point) s.scheduler.finish(*point);
    else s.scheduler.finish(&context);
    return context.broken;
}

static CUresult poll(Context& context, const Point& point) {
    State& s = state();
    s.count.waited = true;
    s.count.query++;
    s.scheduler.nudge(point);
    if (context.broken) return context.broken;
    return point.reached() ? OK : NOT_READY;
}

API CUresult cuCtxSynchronize() {
    Call call(Need::Context);
    if (call.result) return call.result;
    return wait_for(*call.context, nullptr);
}

API CUresult cuStreamSynchronize(CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto stream = stream_of(*call.context, handle);
    if (!stream) return INVALID_HANDLE;
    const Point tail = Scheduler::tail(stream);
    return wait_for(*call.context, &tail);
}

API CUresult cuStreamQuery(CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto stream = stream_of(*call.context, handle);
    return stream ? poll(*call.context, Scheduler::tail(stream)) : CUresult(INVALID_HANDLE);
}

static std::shared_ptr<Event> event_of(CUevent handle) {
    auto event = state().events.find(handle);
    if (!event) report("event %p does not exist (any more)", handle);
    return event;
}

API CUresult cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (flags) return INVALID_VALUE;
    const auto stream = stream_of(*call.context, handle);
    const auto event = event_of(event_handle);
    if (!stream || !event) return INVALID_HANDLE;
    // The last record before this call counts; an event that was never recorded blocks nothing.
    if (event->recorded.reached()) return OK;
    Work work;
    work.after.push_back(event->recorded);
    work.run = [] { return OK; };
    state().scheduler.queue(stream, std::move(work));
    return call.context->broken;
}

API CUresult cuEventCreate(CUevent* handle, unsigned flags) {
    Call call(Need::Context);
    if (call.result) return call.result;
    if (!handle || flags > 7) return INVALID_VALUE;
    auto event = std::make_shared<Event>();
    event->context = call.context;
    event->timed = !(flags & 2);
    state().count.events_made++;
    *handle = state().events.add(event);
    return OK;
}

API CUresult cuEventDestroy_v2(CUevent handle) {
    Call call(Need::Context, Kind::GivesBack);
    if (!state().events.find(handle)) {
        if (call.result) return call.result;
        report("cuEventDestroy of %p, which does not exist (any more)", handle);
        return INVALID_HANDLE;
    }
    state().events.remove(handle);
    return call.result;
}

API CUresult cuEventRecord(CUevent event_handle, CUstream handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto event = event_of(event_handle);
    const auto stream = stream_of(*call.context, handle);
    if (!event || !stream || event->context != stream->context) return INVALID_HANDLE;
    const uint64_t count = stream->queued + 1;
    event->recorded = {stream, count};
    Work work;
    work.run = [event, raw = stream.get(), count] {
        // Recorded again meanwhile: that record's time is the one that counts.
        if (event->recorded.stream.get() == raw && event->recorded.count == count)
            event->time = std::chrono::steady_clock::now();
        return OK;
    };
    state().scheduler.queue(stream, std::move(work));
    return call.context->broken;
}

API CUresult cuEventQuery(CUevent handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto event = event_of(handle);
    return event ? poll(*event->context, event->recorded) : CUresult(INVALID_HANDLE);
}

API CUresult cuEventSynchronize(CUevent handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto event = event_of(handle);
    if (!event) return INVALID_HANDLE;
    const Point recorded = event->recorded;
    return wait_for(*event->context, &recorded);
}

API CUresult cuEventElapsedTime(float* milliseconds, CUevent start_handle, CUevent end_handle) {
    Call call(Need::Context);
    if (call.result) return call.result;
    const auto start = event_of(start_handle), end = event_of(end_handle);
    if (!milliseconds) return INVALID_VALUE;
    if (!start || !end || !start->timed || !end->timed) return INVALID_HANDLE;
    if (!start->recorded.stream || !end->recorded.stream) return INVALID_HANDLE;
    if (!start->recorded.reached() || !end->recorded.reached()) return NOT_READY;
    *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
    return OK;
}
