// The script: the properties of the fake device, and the calls that fail.
#pragma once
#include "api.hpp"
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>

struct Script {
    static constexpr uint64_t NEVER = UINT64_MAX;

    uint64_t devices = 1;
    uint64_t version = 12020;
    uint64_t init = OK;
    uint64_t memory = 2ull << 30;
    uint64_t free = NEVER;  // the part of `memory` that others leave free
    uint64_t fail_alloc = NEVER;
    uint64_t fail_alloc_from = NEVER;
    uint64_t fail_host_alloc = NEVER;
    uint64_t fail_copy = NEVER;
    uint64_t fail_launch = NEVER;
    uint64_t fault_launch = NEVER;
    uint64_t fail_sync = NEVER;
    uint64_t fail_module = 0;
    uint64_t refuse_cubin = OK;
    uint64_t fail_call = NEVER;
    uint64_t lose_after = NEVER;
    uint64_t async = 0;
    uint64_t seed = 0;
    uint64_t capability = 90;
    uint64_t sms = 4;
    uint64_t lanes = 1;
    uint64_t leaks = 0;
    uint64_t hide = 1;

    // False, and the reason on stderr: a script with a typing error would let a test pass that tests nothing.
    bool parse(const char* text) {
        const std::map<std::string, uint64_t*> keys = {
            {"devices", &devices},       {"version", &version},
            {"init", &init},             {"memory", &memory},
            {"free", &free},             {"fail_alloc", &fail_alloc},
            {"fail_copy", &fail_copy},   {"fail_alloc_from", &fail_alloc_from},
            {"fail_launch", &fail_launch}, {"fail_host_alloc", &fail_host_alloc},
            {"fault_launch", &fault_launch}, {"fail_sync", &fail_sync},
            {"fail_module", &fail_module}, {"lose_after", &lose_after},
            {"async", &async},           {"seed", &seed},
            {"capability", &capability}, {"sms", &sms},
            {"lanes", &lanes},           {"leaks", &leaks},
            {"hide", &hide},             {"refuse_cubin", &refuse_cubin},
            {"fail_call", &fail_call},
        };
        std::istringstream words(text ? text : "");
        std::string word;
        while (words >> word) {
            const size_t equals = word.find('=');
            const auto key = equals == std::string::npos ? keys.end() : keys.find(word.substr(0, equals));
            char* end = nullptr;
            const char* digits = word.c_str() + equals + 1;
            const uint64_t value = key == keys.end() ? 0 : std::strtoull(digits, &end, 10);
            if (key == keys.end() || end == digits || *end) {
                std::fprintf(stderr, "fake driver: script: what is '%s'?\n", word.c_str());
                return false;
            }
            *key->second = value;
        }
        if (devices > MAX_DEVICES || sms == 0 || lanes == 0 || lanes > 1024) {
            std::fprintf(stderr, "fake driver: script: 0 to 16 devices, at least 1 of sms, 1 to 1024 lanes\n");
            return false;
        }
        return true;
    }

    static constexpr uint64_t MAX_DEVICES = 16;
};
