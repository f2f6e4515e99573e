// Groups on the host: one lane, or a team of threads.
//
// With one lane, strided loops become plain loops, fast enough to fuzz under the address and undefined-behaviour
// sanitizers. In a team, every collective is write, barrier, read, barrier, so that the thread sanitizer reports a
// missing `sync()` as a race.
#pragma once
#include "core/base.cuh"
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

// The only lane as the only warp of its block.
struct SerialWarp {
    u32 lane() const { return 0; }
    u32 size() const { return 1; }
    u32 index() const { return 0; }
    u32 count() const { return 1; }
    void sync() const {}
    template <class T> T shift_up(T value, u32) const { return value; }
    template <class T> T value_of(T value, u32) const { return value; }
    u32 same_as(u32) const { return 1; }
};

struct SerialGroup {
    u32 lane() const { return 0; }
    u32 size() const { return 1; }
    void sync() const {}
    SerialWarp warp() const { return {}; }
    u32 exclusive_sum(u32 value, u32& total) const {
        total = value;
        return 0;
    }
    bool any(bool value) const { return value; }
    u32 min(u32 value) const { return value; }
    u32 broadcast(u32 value, u32) const { return value; }
};

// The state that the lanes of a team share.
struct Team {
    explicit Team(u32 size) : size(size), slots(size), wide(size) {
        for (u32 lane = 0; lane < size && lanes_of_warp() < size; lane += lanes_of_warp())
            warps.push_back(std::make_unique<Team>(lanes_of_warp()));
    }
    const u32 size;
    std::vector<u32> slots;
    std::vector<u64> wide;
    // A team of eight or more is four warps, each with its own barrier; a smaller one is a single warp.
    std::vector<std::unique_ptr<Team>> warps;

    u32 lanes_of_warp() const { return size >= 8 ? size / 4 : size; }

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        const u64 round = rounds;
        if (++waiting == size) {
            waiting = 0;
            rounds++;
            moved.notify_all();
        } else {
            moved.wait(lock, [&] { return rounds != round; });
        }
    }

  private:
    std::mutex mutex;
    std::condition_variable moved;
    u32 waiting = 0;
    u64 rounds = 0;
};

struct TeamWarp {
    Team& team;
    u32 own, number, warps;

    u32 lane() const { return own; }
    u32 size() const { return team.size; }
    u32 index() const { return number; }
    u32 count() const { return warps; }
    void sync() const { team.wait(); }
    template <class T> T shift_up(T value, u32 by) const { return value_of(value, own < by ? own : own - by); }
    template <class T> T value_of(T value, u32 from) const {
        team.wide[own] = value;
        team.wait();
        const T sent = static_cast<T>(team.wide[from]);
        team.wait();
        return sent;
    }
    // Warps of more than 32 lanes would need more bits.
    u32 same_as(u32 value) const {
        team.wide[own] = value;
        team.wait();
        u32 same = 0;
        for (u32 lane = 0; lane < team.size; lane++) same |= u32(team.wide[lane] == value) << lane;
        team.wait();
        return same;
    }
};

struct TeamGroup {
    Team& team;
    u32 own;

    u32 lane() const { return own; }
    u32 size() const { return team.size; }
    void sync() const { team.wait(); }
    TeamWarp warp() const {
        if (team.warps.empty()) return TeamWarp{team, own, 0, 1};
        const u32 lanes = team.lanes_of_warp();
        return TeamWarp{*team.warps[own / lanes], own % lanes, own / lanes, u32(team.warps.size())};
    }
    u32 exclusive_sum(u32 value, u32& total) const {
        put(value);
        u32 before = 0;
        total = 0;
        for (u32 lane = 0; lane < team.size; lane++) {
            if (lane == own) before = total;
            total += team.slots[lane];
        }
        team.wait();
        return before;
    }
    bool any(bool value) const {
        put(value);
        bool found = false;
        for (u32 lane = 0; lane < team.size; lane++) found |= team.slots[lane] != 0;
        team.wait();
        return found;
    }
    u32 min(u32 value) const {
        put(value);
        u32 least = team.slots[0];
        for (u32 lane = 1; lane < team.size; lane++) least = min_of(least, team.slots[lane]);
        team.wait();
        return least;
    }
    u32 broadcast(u32 value, u32 from) const {
        put(value);
        const u32 sent = team.slots[from];
        team.wait();
        return sent;
    }

  private:
    void put(u32 value) const {
        team.slots[own] = value;
        team.wait();
    }
};
