static void zero(float *y, int n)
{
    for (int i = 0; i < n; i++)
        y[i] = 0;
}
