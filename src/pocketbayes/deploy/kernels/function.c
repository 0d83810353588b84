typedef float function(float t, float a, float b);
