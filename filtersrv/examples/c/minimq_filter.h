/* What a filter in C may ask of the message it is looking at. Each function is explained in
 * filtersrv/engine/src/abi.rs and in filtersrv/README.md. */
#ifndef MINIMQ_FILTER_H
#define MINIMQ_FILTER_H

#include <stdint.h>

#define MINIMQ_IMPORT(name) __attribute__((import_module("minimq"), import_name(#name)))
#define MINIMQ_EXPORT(name) __attribute__((export_name(#name)))

/* Answers of the host, all negative: the property is absent, a pointer is bad, the text is no number, and so on. */
enum {
    MINIMQ_ABSENT = -1,
    MINIMQ_BAD_POINTER = -2,
    MINIMQ_NOT_A_NUMBER = -3,
    MINIMQ_UNKNOWN_SELECTOR = -4,
    MINIMQ_BODY_NOT_DECODABLE = -5,
};

/* For minimq_text. */
enum { MINIMQ_TOPIC, MINIMQ_GROUP, MINIMQ_TAGS, MINIMQ_KEYS, MINIMQ_MESSAGE_ID, MINIMQ_BORN_HOST, MINIMQ_STORE_HOST,
       MINIMQ_OFFSET_MESSAGE_ID, MINIMQ_CLASS_NAME };

/* For minimq_number. */
enum { MINIMQ_QUEUE_ID, MINIMQ_QUEUE_OFFSET, MINIMQ_PHYSICAL_OFFSET, MINIMQ_BORN_MS, MINIMQ_STORED_MS, MINIMQ_FLAG,
       MINIMQ_SYS_FLAG, MINIMQ_RECONSUME_TIMES, MINIMQ_BODY_LEN, MINIMQ_STORED_BODY_LEN, MINIMQ_BODY_CRC,
       MINIMQ_PREPARED_OFFSET, MINIMQ_RECORD_SIZE };

/* The value's whole length; copies at most `capacity` bytes of it to `out`. */
MINIMQ_IMPORT(property) int32_t minimq_property(const char *name, int32_t name_len, char *out, int32_t capacity);
/* 0, and the number at `out`. */
MINIMQ_IMPORT(property_i64) int32_t minimq_property_i64(const char *name, int32_t name_len, int64_t *out);
MINIMQ_IMPORT(property_f64) int32_t minimq_property_f64(const char *name, int32_t name_len, double *out);
MINIMQ_IMPORT(property_count) int32_t minimq_property_count(void);
MINIMQ_IMPORT(property_name) int32_t minimq_property_name(int32_t index, char *out, int32_t capacity);
MINIMQ_IMPORT(text) int32_t minimq_text(int32_t which, char *out, int32_t capacity);
MINIMQ_IMPORT(number) int32_t minimq_number(int32_t which, int64_t *out);
/* How many bytes of the (decompressed) body were copied. */
MINIMQ_IMPORT(body) int32_t minimq_body(int32_t from, void *out, int32_t len);
/* Level 0 error, 1 warning, 2 information, 3 debug. */
MINIMQ_IMPORT(log) void minimq_log(int32_t level, const char *text, int32_t len);

/* The mark of the ABI; never called. */
MINIMQ_EXPORT(minimq_filter_abi_1) void minimq_filter_abi_1(void) {}

/* To be written: 1 keeps the message, 0 drops it, a negative number is an error of the filter's own. */
MINIMQ_EXPORT(filter) int32_t filter(void);

#endif
