/* Keeps every third message above ten, by the property "SequenceId"; one without it is dropped, one whose SequenceId
 * is no number is an error. */
#include "minimq_filter.h"

int32_t filter(void) {
    static const char name[] = "SequenceId";
    int64_t number = 0;
    int32_t code = minimq_property_i64(name, sizeof name - 1, &number);
    if (code == MINIMQ_ABSENT)
        return 0;
    if (code != 0)
        return code;
    return number > 10 && number % 3 == 0;
}
