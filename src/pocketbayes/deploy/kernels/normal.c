/* Number k of draw s: the table has the first half, the second is -z, and an odd number's last is 0. */
static float normal(int s, int k)
{
    return s < DRAWS / 2 ? normals[s][k] : s < DRAWS / 2 * 2 ? -normals[s - DRAWS / 2][k] : 0;
}
