// The text of src/cmd/play/play.html, which cmake/embed.cmake makes a string. Its mark @DATA@ stands where the data
// goes.
#pragma once
extern const char play_page[];
